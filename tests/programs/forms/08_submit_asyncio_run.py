import asyncio
from concurrent.futures import ThreadPoolExecutor, as_completed
from servers.shop import in_stock

with ThreadPoolExecutor() as pool:
    futures = {pool.submit(asyncio.run, in_stock(sku)): sku for sku in ("BK-01", "BK-02", "TY-01")}
    available = {futures[future]: future.result() for future in as_completed(futures)}
print(sorted(available.items()))
