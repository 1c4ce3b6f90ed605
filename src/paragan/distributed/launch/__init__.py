"""Launch of the processes of a run, and their exit statuses."""
