import asyncio
import httpx

async def main():
    async with httpx.AsyncClient() as client:
        r = await client.get("https://api.example.com/rates?base=EUR")
        print(r.json()["rates"]["USD"])

asyncio.run(main())
