from servers.shop import create_order, search_products

train = (await search_products("train", category="toys"))[0]
order = await create_order(
    "Alan Turing",
    [{"sku": train["sku"], "quantity": 2}],
    note="Gift wrap, please",
)
print(f"{order['id']}: 2 x {train['name']} = {order['total']}")
