// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/localapi"
)

// Query asks the agent's socket, as the command line does, and decodes the answer.
func (n *Node) Query(ctx context.Context, path string, into any) error {
	var out bytes.Buffer
	if err := localapi.Query(ctx, "agent", n.Config().AgentSocket, path, nil, &out); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return json.Unmarshal(out.Bytes(), into)
}

// Check has the agent look for what is too much or missing on the node, as
// `coelan check` does; findings are an error.
func (n *Node) Check(ctx context.Context) error {
	var c agentapi.Check
	if err := n.Query(ctx, "/v1/check", &c); err != nil {
		return err
	}
	if !c.OK {
		return fmt.Errorf("node %s: check: %v", n.Name, c.Findings)
	}
	return nil
}
