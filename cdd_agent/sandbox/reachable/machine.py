"""What of the machine any program may read; what does not exist is left out."""

PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
CONFIGURATION = (
    *(
        "/etc/alternatives",
        "/etc/ld.so.cache",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d",
        "/etc/localtime",
        "/etc/timezone",
    ),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/host.conf", "/etc/protocols"),
    *("/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/ca-certificates"),
    *("/etc/pki/ca-trust", "/etc/mime.types", "/etc/magic", "/etc/fonts", "/etc/os-release", "/etc/debian_version"),
    *("/etc/locale.alias", "/etc/terminfo", "/etc/papersize", "/etc/gai.conf", "/etc/ethertypes", "/etc/rpc"),
)
"""What programs look up in ``/etc`` and may: no passwords, no keys."""
PROCESSORS = ("/sys/devices/system/cpu",)
"""Where numerical libraries look for processors."""
