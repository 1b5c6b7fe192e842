        from servers.shop import list_categories

        for category in await list_categories():
            if category != "home":
                print(category)
