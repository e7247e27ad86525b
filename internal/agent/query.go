// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// queryTimeout bounds a question whose context has no deadline.
const queryTimeout = 30 * time.Second

// Query asks the agent behind socket for path, such as /v1/status, and copies the answer to out. A body is posted. An
// answer that is not a success is an error with its text.
func Query(ctx context.Context, socket, path string, body io.Reader, out io.Writer) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, queryTimeout)
		defer cancel()
	}
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent/"+strings.TrimPrefix(path, "/"), body)
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no agent answers on %s: is it running? %w", socket, err)
	}
	if err != nil {
		return fmt.Errorf("agent on %s: %w", socket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return fmt.Errorf("agent: %s: %s", path, strings.TrimSpace(string(text)))
	}
	_, err = io.Copy(out, resp.Body)
	return err
}
