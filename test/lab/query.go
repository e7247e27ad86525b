// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Query asks the agent's socket, as the command line does, and decodes the answer.
func (n *Node) Query(ctx context.Context, path string, into any) error {
	socket := n.Config().AgentSocket
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("agent of %s: %w", n.Name, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("agent of %s: %s: %w", n.Name, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("agent of %s: %s: %s: %s", n.Name, path, resp.Status, text)
	}
	return json.Unmarshal(text, into)
}

// CheckLeaks has the agent look for what is too much or missing on the node.
func (n *Node) CheckLeaks(ctx context.Context) error {
	var got struct {
		Problems []json.RawMessage `json:"problems"`
	}
	if err := n.Query(ctx, "/v1/check", &got); err != nil {
		return err
	}
	if len(got.Problems) > 0 {
		return fmt.Errorf("check of %s: %s", n.Name, got.Problems)
	}
	return nil
}
