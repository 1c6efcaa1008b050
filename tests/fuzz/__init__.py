"""Random inputs for everything that reads what others wrote, each as a function that returns figures."""
