from servers.shop import list_categories

    categories = await list_categories()
    print(len(categories))
