!pip install requests
import requests
