// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/metricsaccess"
)

// process is one running coelan-agent.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it is gone; err is set then
	err    error
}

func (n *Node) runDir() string   { return filepath.Join(n.dir, "run") }
func (n *Node) confDir() string  { return filepath.Join(n.dir, "net.d") }
func (n *Node) binDir() string   { return filepath.Join(n.dir, "bin") }
func (n *Node) agentLog() string { return filepath.Join(n.dir, "agent.log") }

// Config is the configuration of the node's agent. What is the same path on
// every real node lies in a directory of the node's own.
func (n *Node) Config() config.Config {
	c := config.Default()
	if n.lab.options.Binaries == "" { // older releases do not know the setting
		c.MetricsAccess = metricsaccess.Open // there is no API server to ask
	}
	c.Datapath = n.lab.options.Datapath
	c.Encapsulation = n.lab.options.Encapsulation
	c.OVSRunDir = n.ovsDir()
	if n.lab.options.OVN {
		c.Backend.Type, c.Encapsulation = config.OVNBackend, config.Geneve
	}
	if n.lab.options.Neutron {
		c.Backend.Type, c.Backend.MachineBridge = config.NeutronBackend, n.bare
	}
	c.CNI = config.CNI{
		BinDir: n.binDir(), ConfDir: n.confDir(), Socket: filepath.Join(n.runDir(), "cni.sock"),
		Binary: n.program("coelan-cni"),
	}
	c.AgentSocket = filepath.Join(n.runDir(), "agent.sock")
	c.StateDir = filepath.Join(n.dir, "state")
	c.Kubeconfig = filepath.Join(n.dir, "kubeconfig")
	n.configurePolicies(&c)
	if n.lab.options.Configure != nil {
		n.lab.options.Configure(&c)
	}
	if n.lab.options.OVN && len(c.BridgeMappings) > 0 {
		c.Backend.Southbound = n.lab.OVN.Remote("sb")
	}
	return c
}

// StartAgent starts the node's agent and waits until it can plug pods.
func (n *Node) StartAgent(ctx context.Context) error {
	if err := n.SpawnAgent(); err != nil {
		return err
	}
	return n.WaitAgent(ctx)
}

// SpawnAgent starts the node's agent and waits for nothing.
func (n *Node) SpawnAgent() error {
	path, err := n.writeConfig()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(n.agentLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	a := &process{exited: make(chan struct{})}
	a.cmd = exec.Command(n.program("coelan-agent"), "--config", path, "--node-name", n.Name)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err := n.Start(a.cmd); err != nil {
		return fmt.Errorf("agent of %s: %w", n.Name, err)
	}
	n.agent = a
	go func() {
		a.err = a.cmd.Wait()
		close(a.exited)
	}()
	return nil
}

func (n *Node) writeConfig() (string, error) {
	c := n.Config()
	for _, d := range []string{n.runDir(), n.confDir(), n.binDir(), c.StateDir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return "", err
		}
	}
	if err := n.WriteKubeconfig(); err != nil {
		return "", err
	}
	if err := n.writeToken(); err != nil {
		return "", err
	}
	text, err := settings(c)
	if err != nil {
		return "", err
	}
	path := filepath.Join(n.dir, "agent.yaml")
	return path, os.WriteFile(path, text, 0o644)
}

// WriteKubeconfig writes the file by which programs on the node find the API server.
func (n *Node) WriteKubeconfig() error {
	return os.WriteFile(n.Config().Kubeconfig, []byte(kubeconfig()), 0o600)
}

// settings are those of a configuration that are not the default. An agent of another release
// refuses settings that it does not know.
func settings(c config.Config) ([]byte, error) {
	var trees [2]map[string]any
	for i, c := range []config.Config{c, config.Default()} {
		text, err := yaml.Marshal(c)
		if err == nil {
			err = yaml.Unmarshal(text, &trees[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return yaml.Marshal(without(trees[0], trees[1]))
}

// without is a tree without what is the same in another one.
func without(tree, same map[string]any) map[string]any {
	left := map[string]any{}
	for key, value := range tree {
		other, known := same[key]
		branch, isTree := value.(map[string]any)
		if otherBranch, ok := other.(map[string]any); ok && isTree {
			value = without(branch, otherBranch)
			other = map[string]any{}
		}
		if !known || !reflect.DeepEqual(value, other) {
			left[key] = value
		}
	}
	return left
}

// KillAgent kills the agent as kill -9 does and waits until it is gone.
func (n *Node) KillAgent() { n.endAgent(syscall.SIGKILL) }

// StopAgent asks the agent to end, as a rolling update does, and waits until it has.
func (n *Node) StopAgent() { n.endAgent(syscall.SIGTERM) }

func (n *Node) endAgent(sig syscall.Signal) {
	if n.agent == nil {
		return
	}
	_ = n.agent.cmd.Process.Signal(sig) // fails only if it is gone already
	<-n.agent.exited
	n.agent = nil
}

// Uninstall removes what the agent has put on the node, which must not run.
func (n *Node) Uninstall(ctx context.Context) error {
	path, err := n.writeConfig()
	if err != nil {
		return err
	}
	if out, err := n.Run(ctx, n.program("coelan-agent"), "uninstall", "--config", path); err != nil {
		return fmt.Errorf("uninstall of %s: %w: %s", n.Name, err, out)
	}
	return nil
}

// AgentPID is the process id of the agent, 0 if it does not run.
func (n *Node) AgentPID() int {
	if n.agent == nil {
		return 0
	}
	return n.agent.cmd.Process.Pid
}

// AgentLogTail is the end of the agent's log, at most 8 kB.
func (n *Node) AgentLogTail() string {
	log, err := os.ReadFile(n.agentLog())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-8192):])
}

// Between two looks at an agent that is starting is readyInterval, and at least readyPause times
// what a look takes: in an emulated machine, looks without pauses take half of the processors from
// the agent.
const (
	readyInterval = 5 * time.Millisecond
	readyPause    = 10
)

// WaitAgent waits until the agent can plug pods.
func (n *Node) WaitAgent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	for reason := error(nil); ; {
		began := time.Now()
		err := n.ready(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			reason = err
		}
		select {
		case <-time.After(max(readyInterval, readyPause*time.Since(began))):
		case <-n.agent.exited:
			return fmt.Errorf("agent of %s ended: %w; its log ends:\n%s", n.Name, n.agent.err, n.AgentLogTail())
		case <-ctx.Done():
			return fmt.Errorf("agent of %s is not ready: %w; its log ends:\n%s", n.Name, reason, n.AgentLogTail())
		}
	}
}

// ready asks the agent as kubelet's probe does, and looks for the network's
// configuration as the container runtime does.
func (n *Node) ready(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10360/readyz", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = n.Do(func() error {
				c, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return c, err
		},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	_, err = n.Network()
	return err
}
