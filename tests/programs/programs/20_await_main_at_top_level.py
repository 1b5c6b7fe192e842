from servers.shop import list_categories, search_products

async def main() -> None:
    for category in await list_categories():
        products = await search_products(query="", category=category)
        names = ", ".join(p["name"] for p in products)
        print(f"{category}: {names}")

await main()
