"""What can be seen of a gateway, as data: the REST API sends it as JSON, the dashboard shows it as pages."""
