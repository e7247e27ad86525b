// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"coelan.io/coelan/internal/sandbox/artifact"
	"coelan.io/coelan/internal/sandbox/machine"
)

// Sandbox is a cluster on this machine that has been brought up, at least in part.
type Sandbox struct {
	Spec
	dir      string
	cache    artifact.Cache
	progress *Progress
	// octaviaSubnet is the id of the subnet of Octavia's load balancers, which a step of up finds
	// out before Coelan is installed.
	octaviaSubnet string
}

// Open returns the sandbox of that name.
func Open(name string) (*Sandbox, error) {
	if name == "" {
		name = DefaultName
	}
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("%q is not the name of a sandbox", name)
	}
	dir := filepath.Join(StateDir(), name)
	spec, err := readSpec(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no sandbox %s: bring it up with `coelan sandbox up --name %s`", name, name)
	}
	if err != nil {
		return nil, err
	}
	return newSandbox(spec, nil), nil
}

func newSandbox(spec Spec, output io.Writer) *Sandbox {
	if output == nil {
		output = io.Discard
	}
	progress := &Progress{w: output}
	return &Sandbox{
		Spec: spec, dir: filepath.Join(StateDir(), spec.Name), progress: progress,
		cache: artifact.Cache{Dir: artifact.DefaultDir(), Source: artifact.FindSource(), Step: progress.Step},
	}
}

func (s *Sandbox) machineDir(name string) string { return filepath.Join(s.dir, "machines", name) }

// cgroup is the name of a machine's cgroup, or of the one that holds those of all.
func (s *Sandbox) cgroup(machine string) string {
	return filepath.Join("coelan-sandbox-"+s.Name, machine)
}

func (s *Sandbox) client(name string) machine.Client { return machine.Dial(s.machineDir(name)) }

// lock keeps two processes from changing the sandbox at a time. The kernel frees it
// if the process dies.
func (s *Sandbox) lock() (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("sandbox %s is being changed by another process", s.Name)
	}
	return func() { f.Close() }, nil
}

// checkMachine returns an error if the sandbox has no machine of that name.
func (s *Sandbox) checkMachine(name string) error {
	if !slices.Contains(s.Machines(), name) {
		return fmt.Errorf("sandbox %s has no machine %q, only %s", s.Name, name, strings.Join(s.Machines(), ", "))
	}
	return nil
}

// Running reports whether the machine runs.
func (s *Sandbox) Running(machineName string) bool {
	_, ok := machine.PID(s.machineDir(machineName))
	return ok
}

// PID is the machine's first process as seen from outside; 0 if it does not run.
func (s *Sandbox) PID(machineName string) int {
	pid, _ := machine.PID(s.machineDir(machineName))
	return pid
}

// Command is a command that runs args on a machine: a node or the fabric. On nodes, kubectl and the
// sandbox's other programs are in its path.
func (s *Sandbox) Command(ctx context.Context, machineName string, args ...string) (*exec.Cmd, error) {
	if err := s.checkMachine(machineName); err != nil {
		return nil, err
	}
	line, err := machine.Enter(s.machineDir(machineName), args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", machineName, err)
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	path := []string{os.Getenv("PATH"), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	path = append(path, filepath.Dir(s.cache.Binary("kubectl")), filepath.Dir(s.cache.Binary("etcd")))
	cmd.Env = append(os.Environ(), "PATH="+strings.Join(path, ":"), "CONTAINERD_NAMESPACE=k8s.io")
	if s.isControlPlane(machineName) {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+adminKubeconfig)
	}
	// The command is a child of nsenter and must end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd, nil
}

// Exec runs args on a machine and returns what it wrote to its standard output. The error of a
// command that fails has what it wrote to its standard error.
func (s *Sandbox) Exec(ctx context.Context, machineName string, args ...string) ([]byte, error) {
	cmd, err := s.Command(ctx, machineName, args...)
	if err != nil {
		return nil, err
	}
	return output(cmd, machineName+": "+strings.Join(args, " "))
}

func output(cmd *exec.Cmd, what string) ([]byte, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w: %s", what, err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// KubectlCommand is a kubectl command with the cluster administrator's rights.
func (s *Sandbox) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.cache.Binary("kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig(), "KUBECACHEDIR="+filepath.Join(s.dir, "kubectl-cache"))
	return cmd
}

// Kubectl runs kubectl and returns its standard output; its error has the standard error.
func (s *Sandbox) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	return output(s.KubectlCommand(ctx, args...), "kubectl "+strings.Join(args, " "))
}

// Apply runs kubectl apply with a manifest's text.
func (s *Sandbox) Apply(ctx context.Context, manifest string) error {
	cmd := s.KubectlCommand(ctx, "apply", "--server-side", "--force-conflicts", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	_, err := output(cmd, "kubectl apply")
	return err
}

// Kubeconfig is the path of a kubeconfig file with the cluster administrator's rights, for
// use on this machine.
func (s *Sandbox) Kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// RESTConfig is the configuration of a client with the cluster administrator's rights
// and no rate limit.
func (s *Sandbox) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

// Clientset is a Kubernetes client made from RESTConfig.
func (s *Sandbox) Clientset() (*kubernetes.Clientset, error) {
	config, err := s.RESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// Log is the path of a component's log; the component "machine" is the machine itself.
func (s *Sandbox) Log(machineName, component string) string {
	return machine.Log(s.machineDir(machineName), component)
}

// Logs are the paths of the logs that a component's name stands for. They must be there.
func (s *Sandbox) Logs(machineName, component string) ([]string, error) {
	if err := s.checkMachine(machineName); err != nil {
		return nil, err
	}
	var paths []string
	for _, part := range parts(component) {
		path := s.Log(machineName, part)
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%s has no log of a component %q; `coelan sandbox status` lists them", machineName,
				part)
		}
		paths = append(paths, path)
	}
	return paths, nil
}
