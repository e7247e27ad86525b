// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/sandbox/machine"
)

// Names that stand for more than one component, or for none of the machine's own.
const (
	All   = "all"   // every node, in the place of a machine's name
	Node  = "node"  // the whole machine
	OVS   = "ovs"   // Open vSwitch: its database server and its switch
	Agent = "agent" // Coelan's agent, which is a pod
)

// Start starts a component, or the machine if the component is Node, and waits until it is ready.
func (s *Sandbox) Start(ctx context.Context, machineName, component string) error {
	return s.change(ctx, machineName, component, s.startMachines, s.startComponent)
}

// StartMachines boots several machines at once, as those need that wait for each
// other: members of etcd.
func (s *Sandbox) StartMachines(ctx context.Context, names ...string) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range names {
		if err := s.checkMachine(name); err != nil {
			return err
		}
	}
	return s.startMachines(ctx, names)
}

// Stop ends a component with the signal and keeps it stopped. A machine is switched off:
// every process of it dies at once, and only its disk stays. A component of a machine that
// was off starts with it.
func (s *Sandbox) Stop(ctx context.Context, machineName, component string, signal syscall.Signal) error {
	return s.change(ctx, machineName, component, s.stopMachines,
		func(ctx context.Context, machineName, component string) error {
			return s.stopComponent(ctx, machineName, component, signal)
		})
}

// Restart is Stop and Start. A machine reboots after a power cut; with All for its name, all nodes
// do at once.
func (s *Sandbox) Restart(ctx context.Context, machineName, component string, signal syscall.Signal) error {
	return s.change(ctx, machineName, component,
		func(ctx context.Context, names []string) error {
			if err := s.stopMachines(ctx, names); err != nil {
				return err
			}
			return s.startMachines(ctx, names)
		},
		func(ctx context.Context, machineName, component string) error {
			return s.restartComponent(ctx, machineName, component, signal)
		})
}

// change does one thing to whole machines or to a component of each.
func (s *Sandbox) change(
	ctx context.Context, machineName, component string,
	machines func(context.Context, []string) error, one func(context.Context, string, string) error,
) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	names := []string{machineName}
	if machineName == All {
		names = s.Nodes()
	} else if err := s.checkMachine(machineName); err != nil {
		return err
	}
	if component == Node {
		if slices.Contains(names, FabricName) {
			return errors.New("the fabric holds the nodes together: it goes up and down with the sandbox")
		}
		return machines(ctx, names)
	}
	return each(ctx, names, func(ctx context.Context, name string) error { return one(ctx, name, component) })
}

func (s *Sandbox) stopMachines(ctx context.Context, names []string) error {
	return s.killMachines(ctx, s.withVMs(names))
}

func (s *Sandbox) killMachines(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	return each(ctx, names, func(ctx context.Context, name string) error {
		return machine.Kill(ctx, s.machineDir(name))
	})
}

// withVMs are the machines, and after them those of OpenStack that run on them and are not named.
func (s Spec) withVMs(names []string) []string {
	more := slices.DeleteFunc(s.vmsOn(names...), func(vm string) bool { return slices.Contains(names, vm) })
	return slices.Concat(names, more)
}

// startMachines boots the machines and waits until their components run and their nodes have
// reported this boot. Those of OpenStack come after their hypervisors, and with them.
func (s *Sandbox) startMachines(ctx context.Context, names []string) error {
	names = s.withVMs(names)
	vms := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !s.isVM(name) })
	others := slices.DeleteFunc(slices.Clone(names), s.isVM)
	for _, group := range [][]string{others, vms} {
		if err := each(ctx, group, s.boot); err != nil {
			return err
		}
	}
	if err := each(ctx, names, s.waitComponents); err != nil {
		return err
	}
	return s.waitBooted(ctx, names)
}

// waitComponents returns when everything on a machine is ready.
func (s *Sandbox) waitComponents(ctx context.Context, name string) error {
	list, err := s.client(name).Status(ctx)
	if err != nil {
		return err
	}
	for _, c := range list {
		if err := s.WaitComponent(ctx, name, c.Name, apiTimeout); err != nil {
			return err
		}
	}
	return nil
}

// waitBooted returns when the API server knows that the nodes have booted and, with a
// pod network, are Ready.
func (s *Sandbox) waitBooted(ctx context.Context, names []string) error {
	boots := map[string]string{}
	for _, name := range names {
		id, _, err := machine.LastBoot(s.machineDir(name))
		if err != nil {
			return err
		}
		boots[name] = id
	}
	_, err := s.waitNodes(ctx, names, "report their boot", func(n *corev1.Node) bool {
		return n.Status.NodeInfo.BootID == boots[n.Name] && (s.CNI == NoCNI || nodeReady(n))
	})
	return err
}

// parts are the components that a name stands for, in the order in which they start.
func parts(component string) []string {
	if component == OVS {
		return []string{ovsdbServer, ovsVswitchd}
	}
	return []string{component}
}

func (s *Sandbox) startComponent(ctx context.Context, machineName, component string) error {
	if component == Agent {
		return s.startAgent(ctx, machineName)
	}
	for _, part := range parts(component) {
		if err := s.client(machineName).Start(ctx, part); err != nil {
			return fmt.Errorf("start %s: %w", part, err)
		}
		if err := s.WaitComponent(ctx, machineName, part, apiTimeout); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) stopComponent(ctx context.Context, machineName, component string, signal syscall.Signal) error {
	if component == Agent {
		return s.stopAgent(ctx, machineName)
	}
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	list := parts(component)
	slices.Reverse(list)
	for _, part := range list {
		if err := s.client(machineName).Stop(ctx, part, signal); err != nil {
			return fmt.Errorf("stop %s: %w", part, err)
		}
	}
	return nil
}

func (s *Sandbox) restartComponent(ctx context.Context, machineName, component string, signal syscall.Signal) error {
	if component == Agent {
		return s.restartAgent(ctx, machineName, signal)
	}
	if err := s.stopComponent(ctx, machineName, component, signal); err != nil {
		return err
	}
	return s.startComponent(ctx, machineName, component)
}

// Kill sends a component the signal. If it ends, the machine (kubelet, for the agent) starts it
// again. After SIGKILL a component of the machine has ended when Kill returns.
func (s *Sandbox) Kill(ctx context.Context, machineName, component string, signal syscall.Signal) error {
	if err := s.checkMachine(machineName); err != nil {
		return err
	}
	if component == Agent {
		return s.signalAgent(ctx, machineName, signal)
	}
	for _, part := range parts(component) {
		if err := s.client(machineName).Kill(ctx, part, signal); err != nil {
			return fmt.Errorf("kill %s on %s: %w", part, machineName, err)
		}
	}
	return nil
}
