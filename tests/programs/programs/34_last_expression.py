from servers.shop import list_categories

categories = await list_categories()
[c.upper() for c in categories]
