"""What lies round the tests of a framework: tools on this machine, configuration, names that sources bring."""
