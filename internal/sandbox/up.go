// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"coelan.io/coelan/internal/kernellimits"
	"coelan.io/coelan/internal/sandbox/artifact"
	"coelan.io/coelan/internal/sandbox/machine"
	"coelan.io/coelan/internal/sandbox/pki"
	"coelan.io/coelan/internal/statefile"
)

// Bounds of the waits of up. A loaded machine needs many times what an idle one does.
const (
	bootTimeout    = 30 * time.Second
	apiTimeout     = 2 * time.Minute
	clusterTimeout = 4 * time.Minute
)

// Install says how to install Coelan.
type Install struct {
	// Manifest is applied to the cluster; deploy/coelan.yaml in Coelan's source if empty.
	Manifest string
	// Archives are loaded into every node first; bin/images/coelan.tar in Coelan's source if empty.
	Archives []string

	more []string // files that belong to a default Manifest
}

// complete fills in the defaults for the backend and checks that the files are there.
func (i Install) complete(source string, backend Backend) (Install, error) {
	if source == "" && (i.Manifest == "" || len(i.Archives) == 0) {
		return i, errors.New("not in a clone of Coelan's source: say with --manifest and --image what to install, " +
			"or take --cni bridge")
	}
	if i.Manifest == "" {
		i.Manifest = filepath.Join(source, "deploy/coelan.yaml")
		if backend == NeutronBackend {
			i.more = []string{filepath.Join(source, "deploy/neutron.yaml")}
		}
	}
	if len(i.Archives) == 0 {
		i.Archives = []string{filepath.Join(source, "bin/images/coelan.tar")}
	}
	for _, file := range slices.Concat(i.manifests(), i.Archives) {
		if _, err := os.Stat(file); err != nil {
			return i, fmt.Errorf("cannot install Coelan: %w (`make images` writes the archive)", err)
		}
	}
	return i, nil
}

// manifests are the files of what is applied.
func (i Install) manifests() []string { return append([]string{i.Manifest}, i.more...) }

// Prepare makes everything that sandboxes are built from and that the cache lacks.
func Prepare(ctx context.Context, output io.Writer) error {
	if err := artifact.CheckTools(debianTarget); err != nil {
		return err
	}
	return newSandbox(Spec{}, output).cache.Prepare(ctx, artifact.Extras...)
}

// The targets of the Makefile that install Debian's packages for sandboxes, and for those with
// Neutron.
const (
	debianTarget  = "deps"
	neutronTarget = "deps-neutron"
)

// prepare makes what this sandbox is built from and the cache lacks.
func (s *Sandbox) prepare(ctx context.Context) error {
	var tools []artifact.Tool
	target := debianTarget
	if s.Backend.onOVN() {
		tools = ovnTools
	}
	if s.Backend == NeutronBackend {
		tools, target = slices.Concat(ovnTools, artifact.NeutronTools), neutronTarget
	}
	if err := artifact.CheckTools(target, tools...); err != nil {
		return err
	}
	var extras []artifact.Extra
	if s.Services == KubeProxyServices {
		extras = append(extras, artifact.KubeProxy)
	}
	if err := s.cache.Prepare(ctx, extras...); err != nil || s.Backend != NeutronBackend {
		return err
	}
	_, err := s.cache.NeutronDatabase(ctx)
	return err
}

// Up brings up the sandbox of the spec, or whatever of it does not run yet. It returns
// when all nodes are Ready and the cluster's DNS is available; without a pod network, when
// all nodes are registered.
func Up(ctx context.Context, spec Spec, install Install, output io.Writer) (*Sandbox, error) {
	setDefault(&spec.Name, DefaultName)
	s := newSandbox(spec, output)
	var err error
	if s.Spec, err = merge(s.dir, spec); err != nil {
		return nil, err
	}
	if s.CNI == Coelan {
		if install, err = install.complete(s.cache.Source, s.Backend); err != nil {
			return nil, err
		}
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.Spec.write(s.dir); err != nil {
		return nil, err
	}
	return s, s.up(ctx, install)
}

func (s *Sandbox) up(ctx context.Context, install Install) error {
	type step struct {
		name string
		run  func(context.Context) error
	}
	steps := []step{
		{"disks of " + strings.Join(s.Machines(), ", "), s.makeDisks},
		{"boot " + strings.Join(append([]string{FabricName}, s.fabricNodes()...), ", "), s.bootAll},
		{"API server", s.waitAPI},
		{"nodes registered", func(ctx context.Context) error { return s.waitRegistered(ctx, s.fabricNodes()) }},
	}
	if s.Backend == NeutronBackend {
		steps = append(steps, step{"Neutron", s.waitNeutron}, step{"Octavia", s.prepareOctavia})
	}
	if s.VMs > 0 {
		steps = append(steps, step{"machines of OpenStack: " + strings.Join(s.VMNames(), ", "), s.bootVMs})
	}
	switch s.CNI {
	case Coelan:
		if s.Services == KubeProxyServices {
			steps = append(steps, step{"kube-proxy ready", s.startKubeProxy})
		}
		steps = append(steps,
			step{"load Coelan's images", func(ctx context.Context) error {
				return s.loadChanged(ctx, install.Archives)
			}},
			step{"install Coelan", func(ctx context.Context) error { return s.install(ctx, install) }},
			step{"agents ready", s.waitAgents})
		if s.Services == NativeServices {
			steps = append(steps, step{"no kube-proxy", s.stopKubeProxy})
		}
	case Bridge:
		steps = append(steps, step{"bridge network and routes", s.bridgeNetwork})
	}
	steps = append(steps, step{"apply CoreDNS", s.applyCoreDNS})
	if s.CNI != NoCNI {
		steps = append(steps, step{"nodes Ready", s.waitReady}, step{"CoreDNS available", s.waitCoreDNS})
	}
	if s.CNI == Coelan {
		steps = append(steps, step{"controller ready", s.waitController})
	}
	if s.Backend == NeutronBackend {
		steps = append(steps, step{"subnet of Octavia on the pods' router", s.routeOctavia})
	}
	for _, step := range steps {
		if err := s.progress.Step(step.name, func() error { return step.run(ctx) }); err != nil {
			return fmt.Errorf("sandbox %s: %s: %w", s.Name, step.name, err)
		}
	}
	return nil
}

// each runs do for all names at once and joins the errors, each with its name.
func each(ctx context.Context, names []string, do func(context.Context, string) error) error {
	var group errgroup.Group
	errs := make([]error, len(names))
	for i, name := range names {
		group.Go(func() error {
			if err := do(ctx, name); err != nil {
				errs[i] = fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(errs...)
}

// makeDisks writes what the machines find when they boot.
func (s *Sandbox) makeDisks(ctx context.Context) error {
	for _, name := range s.Machines() { // the first one to need a credential makes it
		if err := s.makeDisk(ctx, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (s *Sandbox) makeDisk(ctx context.Context, name string) error {
	dir := s.machineDir(name)
	if err := plantEtc(ctx, filepath.Join(dir, "etc")); err != nil {
		return err
	}
	config := s.fabricMachine()
	if name != FabricName {
		config = s.nodeMachine(name)
		if err := s.cache.PlantStore(ctx, filepath.Join(dir, "var/lib/containerd")); err != nil {
			return err
		}
		if err := s.plantPlugins(ctx, filepath.Join(dir, "opt/cni/bin")); err != nil {
			return err
		}
		if name == ControlPlaneName && s.Backend == NeutronBackend {
			if err := s.plantNeutron(ctx, dir); err != nil {
				return err
			}
		}
		// Routes to other nodes' pods are known only once those have been registered.
		if old, err := machine.Read(dir); err == nil && old.Uplink != nil {
			config.Uplink.Routes = old.Uplink.Routes
		}
	}
	if err := config.Write(dir); err != nil {
		return err
	}
	return s.writeFiles(name)
}

// bootAll boots the machines that do not run, but for those of OpenStack: the fabric first, since
// the others plug into it.
func (s *Sandbox) bootAll(ctx context.Context) error {
	if err := raiseInotify(); err != nil {
		return err
	}
	// Agents cannot: the tables are the computer's, and nodes are network namespaces.
	if _, err := kernellimits.RaiseNeighbors("/proc/sys", "ipv4", "ipv6"); err != nil {
		return err
	}
	if err := s.boot(ctx, FabricName); err != nil {
		return fmt.Errorf("%s: %w", FabricName, err)
	}
	return each(ctx, s.fabricNodes(), s.boot)
}

func (s *Sandbox) boot(ctx context.Context, name string) error {
	if s.Running(name) {
		return nil
	}
	// What ran on a hypervisor has lost its wires with it.
	if err := s.killMachines(ctx, s.vmsOn(name)); err != nil {
		return err
	}
	if s.isVM(name) {
		return s.bootVM(ctx, name)
	}
	return s.bootMachine(ctx, name)
}

func (s *Sandbox) bootMachine(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	inherited, err := s.inherited(name)
	if err != nil {
		return err
	}
	defer inherited.Close()
	return machine.Boot(ctx, s.machineDir(name), inherited)
}

// inherited is what the machine gets from outside: the fabric a listener on this
// machine's loopback, for clients of the API server; a node the network namespace of
// the fabric, or of its hypervisor, to plug itself in.
func (s *Sandbox) inherited(name string) (*os.File, error) {
	if name != FabricName {
		outer := FabricName
		if s.isVM(name) {
			outer = s.hypervisor(name)
		}
		return machine.Network(s.machineDir(outer))
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	if err := s.writeKubeconfig(listener.Addr()); err != nil {
		return nil, err
	}
	return listener.(*net.TCPListener).File()
}

func (s *Sandbox) writeKubeconfig(address net.Addr) error {
	ca, err := pki.Store{Dir: filepath.Join(s.dir, "pki")}.Authority("ca")
	if err != nil {
		return err
	}
	admin, err := ca.Issue(ControlPlaneName+"/admin.conf",
		pki.Subject{Name: "kubernetes-admin", Organization: "system:masters"})
	if err != nil {
		return err
	}
	text := kubeconfig("https://"+address.String(), "coelan-sandbox-"+s.Name, ca.Cert, admin)
	return statefile.WriteBytes(s.Kubeconfig(), 0o600, []byte(text))
}

// WaitComponent returns when a component of a machine is ready. Its error names the component's log
// and how it ends.
func (s *Sandbox) WaitComponent(ctx context.Context, machineName, component string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := s.client(machineName).WaitReady(ctx, component)
	if err == nil {
		return nil
	}
	log := s.Log(machineName, component)
	return fmt.Errorf("%s on %s is not ready after %s: %w; see %s, which ends:\n%s",
		component, machineName, timeout, err, log, lastLines(log, 5))
}

func lastLines(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
