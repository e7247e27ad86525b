// SPDX-License-Identifier: Apache-2.0

package installation

import (
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
	for _, name := range []string{State, Services, Policies, configuration.File} {
		names = append(names, name, name+".new")
	}
	for _, name := range append(names, State+".lock", "cni.sock", "agent.sock", "other", "other.new") {
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
