// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/sandbox/machine"
)

// MachineStatus is the state of one machine.
type MachineStatus struct {
	Name string
	// PID is the first process as seen from outside; 0 if the machine is off.
	PID int
	// Components are those of a machine that runs.
	Components []machine.Status
	// NodeReady is the Ready condition's status, "" if the API server does not answer or
	// has no such node.
	NodeReady corev1.ConditionStatus
	// Err is why the machine does not tell its state.
	Err error
}

// Healthy reports whether all of the machine is ready; that its node is, is only asked if there is
// a pod network.
func (m MachineStatus) Healthy(cni CNI) bool {
	if m.PID == 0 || m.Err != nil {
		return false
	}
	for _, c := range m.Components {
		if c.State != machine.Ready {
			return false
		}
	}
	return m.Name == FabricName || cni == NoCNI || m.NodeReady == corev1.ConditionTrue
}

const statusTimeout = 5 * time.Second

// Status returns the state of every machine.
func (s *Sandbox) Status(ctx context.Context) []MachineStatus {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	ready := s.nodeConditions(ctx)
	list := make([]MachineStatus, 0, len(s.Machines()))
	for _, name := range s.Machines() {
		status := MachineStatus{Name: name, NodeReady: ready[name]}
		if pid, ok := machine.PID(s.machineDir(name)); ok {
			status.PID = pid
			status.Components, status.Err = s.client(name).Status(ctx)
		}
		list = append(list, status)
	}
	return list
}

// nodeConditions are the nodes' Ready conditions, as far as the API server tells.
func (s *Sandbox) nodeConditions(ctx context.Context) map[string]corev1.ConditionStatus {
	if !slices.ContainsFunc(s.ControlPlaneNames(), s.Running) {
		return nil
	}
	client, err := s.Clientset()
	if err != nil {
		return nil
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	ready := map[string]corev1.ConditionStatus{}
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				ready[n.Name] = c.Status
			}
		}
	}
	return ready
}
