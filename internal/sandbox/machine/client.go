// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
)

// Client talks to a machine's manager.
type Client struct{ http *http.Client }

// Dial returns a client of the machine in dir. It connects when it is used.
func Dial(dir string) Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(dir, socketFile))
	}
	return Client{&http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status lists the components in the order of the configuration.
func (c Client) Status(ctx context.Context) ([]Status, error) {
	var list []Status
	return list, c.do(ctx, http.MethodGet, "/components", nil, &list)
}

// Start wants the component to run and returns at once.
func (c Client) Start(ctx context.Context, component string) error {
	return c.do(ctx, http.MethodPost, "/components/"+component+"/start", nil, nil)
}

// Stop ends the component with the signal (SIGKILL if it takes too long) and keeps it stopped; it
// returns when it is.
func (c Client) Stop(ctx context.Context, component string, signal syscall.Signal) error {
	return c.do(ctx, http.MethodPost, fmt.Sprintf("/components/%s/stop?signal=%d", component, signal), nil, nil)
}

// Kill sends the signal to a component that stays wanted: if it ends, it is started again. After
// SIGKILL it returns when the process has ended.
func (c Client) Kill(ctx context.Context, component string, signal syscall.Signal) error {
	return c.do(ctx, http.MethodPost, fmt.Sprintf("/components/%s/kill?signal=%d", component, signal), nil, nil)
}

// WaitReady returns when the component is ready; the context bounds it.
func (c Client) WaitReady(ctx context.Context, component string) error {
	return c.do(ctx, http.MethodGet, "/components/"+component+"/ready", nil, nil)
}

// SetRoutes replaces the uplink's additional routes until the next boot.
func (c Client) SetRoutes(ctx context.Context, routes []Route) error {
	return c.do(ctx, http.MethodPut, "/routes", routes, nil)
}

func (c Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://machine"+path, body)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s", strings.TrimSpace(string(data)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}
