import asyncio
import queue
import threading
from servers.shop import get_order

results = queue.Queue()

def worker(order_id):
    loop = asyncio.new_event_loop()
    try:
        results.put(loop.run_until_complete(get_order(order_id=order_id)))
    finally:
        loop.close()

threads = [threading.Thread(target=worker, args=(f"O-{n}",)) for n in (1001, 1002, 1003)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(results.get()["id"] for _ in threads))
