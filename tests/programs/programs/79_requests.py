import requests

resp = requests.get("https://api.example.com/orders", params={"status": "pending"}, timeout=10)
resp.raise_for_status()
print(len(resp.json()))
