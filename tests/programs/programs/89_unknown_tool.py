from servers.shop import send_newsletter

await send_newsletter(subject="Spring sale")
