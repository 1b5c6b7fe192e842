from servers.shop import stock_levels

levels = await stock_levels()
print(json.dumps(levels))
