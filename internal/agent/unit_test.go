// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"coelan.io/coelan/internal/agent/configuration"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/config"
)

// What a write that was cut off has left goes as well; others' files stay.
func TestUninstallRemovesWhatIsRemembered(t *testing.T) {
	c := config.Default()
	c.StateDir = t.TempDir()
	c.CNI.Socket, c.AgentSocket = c.StateFile("cni.sock"), c.StateFile("agent.sock")
	var names []string
	for _, name := range []string{stateFile, servicesFile, policiesFile, configuration.File} {
		names = append(names, name, name+".new")
	}
	for _, name := range append(names, stateFile+".lock", "cni.sock", "agent.sock", "other", "other.new") {
		if err := os.WriteFile(c.StateFile(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := removeState(c); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(c.StateDir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v, %v; want the two files of others", left, err)
	}
}

// Pods on bridges of external controllers are not in the state file, and lose their network too.
func TestUninstallRefusesForeignPods(t *testing.T) {
	c := config.Default()
	c.StateDir = t.TempDir()
	foreign := []attachment.Attachment{{Spec: attachment.Spec{
		Key: attachment.Key{ContainerID: "a", IfName: "eth0"}, PodNamespace: "shop", PodName: "web-0",
	}}}
	if done, err := Uninstall(c, false, foreign, nil); err == nil || !strings.Contains(err.Error(), "1 pods are attached, the first is shop/web-0/eth0") {
		t.Errorf("removed %v, error %v", done, err)
	}
}

// The physical networks of the configuration are the backend's from the start: their ports have
// numbers before the first flows are made.
func TestBackendIsMadeForTheUplinks(t *testing.T) {
	c := config.Default()
	c.StateDir = t.TempDir()
	c.BridgeMappings = map[string]string{"office": "br-office"}
	a, err := New(Options{Config: c, Backend: openVSwitch(), NodeName: "worker1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if a.store, err = attachment.Open(c.StateFile(stateFile)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.store.Close() })
	if err := a.makeParts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := a.backend.Uplinks(); len(got) != 1 || got["office"] == 0 {
		t.Errorf("ports of physical networks: %v", got)
	}
}
