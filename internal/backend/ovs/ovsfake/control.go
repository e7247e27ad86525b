// SPDX-License-Identifier: Apache-2.0

package ovsfake

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// control answers on ovs-vswitchd's control socket (ovs: lib/unixctl.c).
type control struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu      sync.Mutex
	answers map[string]string
	calls   []string
}

func newControl(dir string) (*control, error) {
	l, err := net.Listen("unix", filepath.Join(dir, "ovs-vswitchd.42.ctl"))
	if err != nil {
		return nil, err
	}
	c := &control{listener: l, answers: map[string]string{
		"version":     "ovs-vswitchd (Open vSwitch) 3.1.0\n",
		"memory/show": "handlers:2 revalidators:1\n", "revalidator/wait": "", "revalidator/purge": "",
	}}
	c.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.serving.Go(func() { c.serve(conn) })
		}
	})
	return c, os.WriteFile(filepath.Join(dir, "ovs-vswitchd.pid"), []byte("42\n"), 0o600)
}

func (c *control) serve(conn net.Conn) {
	defer conn.Close()
	var r struct {
		ID     any
		Method string
		Params []string
	}
	if json.NewDecoder(conn).Decode(&r) != nil {
		return
	}
	c.mu.Lock()
	answer, known := c.answers[r.Method]
	c.calls = append(c.calls, strings.Join(append([]string{r.Method}, r.Params...), " "))
	c.mu.Unlock()
	reply := map[string]any{"id": r.ID, "result": answer, "error": nil}
	if !known {
		reply["result"], reply["error"] = nil, fmt.Sprintf("%q is not a valid command", r.Method)
	}
	_ = json.NewEncoder(conn).Encode(reply)
}

func (c *control) close() {
	_ = c.listener.Close()
	c.serving.Wait()
}

// Answer sets what ovs-vswitchd answers to a command.
func (o *OVS) Answer(command, text string) {
	o.control.mu.Lock()
	defer o.control.mu.Unlock()
	o.control.answers[command] = text
}

// Calls are the commands that ovs-vswitchd got since the last call, with their arguments.
func (o *OVS) Calls() []string {
	o.control.mu.Lock()
	defer o.control.mu.Unlock()
	calls := o.control.calls
	o.control.calls = nil
	return calls
}
