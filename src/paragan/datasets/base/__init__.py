"""Sources, readers and checks of data sets, which other rooms use."""
