"""How values cross between the JVM and Python."""
