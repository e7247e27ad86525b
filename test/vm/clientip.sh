#!/bin/sh
printf 'Content-Type: text/plain\r\n\r\n%s' "$REMOTE_ADDR"
