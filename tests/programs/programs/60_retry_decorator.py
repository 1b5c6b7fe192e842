import asyncio
import functools
from servers.shop import get_order, count_orders

def with_retry(func, attempts=3, base_delay=0.01):
    @functools.wraps(func)
    async def wrapper(*args, **kwargs):
        for attempt in range(1, attempts + 1):
            try:
                return await func(*args, **kwargs)
            except Exception as e:
                print(f"{func.__name__} attempt {attempt} failed")
                if attempt == attempts:
                    return None
                await asyncio.sleep(base_delay * 2 ** attempt)
    return wrapper

safe_get = with_retry(get_order, attempts=2)
print((await safe_get("O-1001"))["status"])
print(await safe_get(order_id="O-0000"))
print(await with_retry(count_orders)())
