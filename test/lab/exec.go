// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// nodeExec runs CNI plugins in a node's namespace, as the node's container
// runtime does.
type nodeExec struct {
	node *Node
	version.PluginDecoder
}

var _ invoke.Exec = (*nodeExec)(nil)

func (e *nodeExec) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// ExecPlugin runs one plugin. A plugin that fails says why on its standard output.
func (e *nodeExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &out, &errOut
	err := e.node.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err == nil {
		return out.Bytes(), nil
	}
	var said types.Error
	if json.Unmarshal(out.Bytes(), &said) == nil && said.Msg != "" {
		return nil, &said
	}
	return nil, fmt.Errorf("%s: %w: %s%s", path, err, out.Bytes(), errOut.Bytes())
}
