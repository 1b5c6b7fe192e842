import asyncio
from servers.shop import start_export, export_status

job_id = await start_export(kind="orders")

found = False
attempts = 0
while not found and attempts < 20:
    attempts += 1
    job = await export_status(job_id=job_id)
    print(f"Attempt {attempts}: {job['state']} ({job['percent']}%)")
    found = job["state"] == "done"
    if not found:
        await asyncio.sleep(0.05)

print("Export complete!" if found else "Timed out")
