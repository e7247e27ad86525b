// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coelan.io/coelan/internal/config"
)

func TestWithoutHandlers(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want bool
	}{
		"healthy":               {"handlers:2 idl-cells-Open_vSwitch:517 ports:8 revalidators:1 rules:135 udpif keys:87\n", false},
		"trapped":               {"idl-cells-Open_vSwitch:517 ports:8 revalidators:1 rules:135\n", true},
		"trapped, newer output": {"handlers:0 ports:8 revalidators:1\n", true},
		"no datapath yet":       {"idl-cells-Open_vSwitch:12\n", false},
		"nothing yet":           {"", false},
	} {
		if got := withoutHandlers(tc.text); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestConditions(t *testing.T) {
	c := newConditions(slog.New(slog.DiscardHandler))
	for _, k := range allConditions[:len(allConditions)-1] {
		if err := c.unmet(); err == nil || err.Error() != string(k)+": "+errStarting.Error() {
			t.Errorf("before %s: %v", k, err)
		}
		changed := c.changes()
		c.set(k, nil)
		select {
		case <-changed:
		default:
			t.Errorf("nobody was told that %s is met", k)
		}
	}
	if err := c.unmet(); err != nil {
		t.Errorf("pods cannot be attached: %v", err)
	}
	if err := c.notReady(); err == nil {
		t.Error("ready before the runtime knows the network")
	}
	c.set(condCNI, nil)
	if err := c.notReady(); err != nil {
		t.Error(err)
	}
	broken := errors.New("broken")
	c.set(condFlows, broken)
	changed := c.changes()
	c.set(condFlows, errors.New("broken"))
	select {
	case <-changed:
		t.Error("the same outcome counted as a change")
	default:
	}
	if err := c.unmet(); !errors.Is(err, broken) {
		t.Errorf("unmet: %v", err)
	}
	want := map[string]string{"node": "", "ovs": "", "bridge": "", "flows": "broken", "host": "", "cni": ""}
	if diff := cmp.Diff(want, c.all()); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
}

func TestKeyedLocksExclude(t *testing.T) {
	k := newKeyed()
	var counts [3]int
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			name := fmt.Sprint(i % 3)
			if err := k.lock(t.Context(), name); err != nil {
				t.Error(err)
				return
			}
			counts[i%3]++
			k.unlock(name)
		})
	}
	wg.Wait()
	if counts != [3]int{20, 20, 20} {
		t.Errorf("counts: %v", counts)
	}
	if !k.try("a") || k.try("a") || !k.try("b") {
		t.Error("try does not tell held names from free ones")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := k.lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("lock of a held name: %v", err)
	}
}

// What a write that was cut off has left goes as well; others' files stay.
func TestUninstallRemovesWhatIsRemembered(t *testing.T) {
	c := config.Default()
	c.StateDir = t.TempDir()
	c.CNI.Socket, c.AgentSocket = c.StateFile("cni.sock"), c.StateFile("agent.sock")
	var names []string
	for _, name := range []string{stateFile, uplinkFile, servicesFile, policiesFile} {
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
