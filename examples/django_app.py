"""Django: one blocking client for the process, and a lock around a view: 409 instead of a wait."""

import os

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

import asyncdlock

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY=os.urandom(16).hex())
django.setup()
# A server may fork after it has loaded this module: the client starts anew in each child.
locks = asyncdlock.blocking.connect(os.environ.get("LOCK_URL", "memory://"))


def render(request: HttpRequest, name: str) -> JsonResponse:
    try:
        with locks.hold(f"report:{name}", timeout=0.5) as lock:
            lock.check()  # a thread cannot be cancelled: ask, and send lock.fence with whatever is written
            return JsonResponse({"report": name, "fence": lock.fence})
    except asyncdlock.AcquireTimeout:
        return JsonResponse({"error": "this report is already being rendered"}, status=409)
    except asyncdlock.BackendError:
        return JsonResponse({"error": "the lock server does not answer"}, status=503)


urlpatterns = [path("reports/<name>", render)]
application = get_wsgi_application()
