// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// probeInterval is short because a boot is a chain of these; nothing announces
// that a socket accepts.
const probeInterval = 50 * time.Millisecond

// wait returns nil once the probe is satisfied, or the context's error.
func (p Probe) wait(ctx context.Context, pid int) error {
	switch {
	case p.Socket != "":
		path := p.Socket
		if strings.Contains(path, "%d") {
			path = fmt.Sprintf(path, pid)
		}
		return retry(ctx, func() error { return connect(ctx, "unix", path) })
	case len(p.Files) > 0:
		return retry(ctx, func() error { return exist(p.Files) })
	case p.URL != "":
		client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true,
			// It asks this machine's own loopback whether something serves, and
			// sends and trusts nothing.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}}
		return retry(ctx, func() error { return get(ctx, client, p.URL) })
	}
	return ctx.Err()
}

// reachable returns nil once the TCP address accepts connections.
func reachable(ctx context.Context, address string) error {
	return retry(ctx, func() error { return connect(ctx, "tcp", address) })
}

func retry(ctx context.Context, try func() error) error {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		if try() == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func exist(files []string) error {
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			return err
		}
	}
	return nil
}

func connect(ctx context.Context, network, address string) error {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}
