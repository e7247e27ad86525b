// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/policystream/wire"
)

// node has agents of a test. Its fields are changed while nothing runs.
type node struct {
	t    *testing.T
	base config.Config
	file string
	*Manager
	// agents are the MTUs of those that were made.
	agents []int
	// refuses, unsettled and broken are by MTU what an agent with it says; unheard are those that
	// reach no controller.
	refuses, unsettled, broken map[int]error
	unheard                    map[int]bool
	answer                     *wire.NodeConfiguration
	stop                       context.CancelFunc
	ended                      chan error
}

type fakeAgent struct {
	*node
	mtu int
}

func newNode(t *testing.T) *node {
	return &node{
		t: t, base: config.Default(), file: filepath.Join(t.TempDir(), File),
		refuses: map[int]error{}, unsettled: map[int]error{}, broken: map[int]error{}, unheard: map[int]bool{},
	}
}

func (a fakeAgent) Run(ctx context.Context) error {
	if err := a.broken[a.mtu]; err != nil {
		return err
	}
	if a.answer != nil && !a.unheard[a.mtu] {
		a.Received(a.answer)
	}
	<-ctx.Done()
	return nil
}

func (a fakeAgent) Admits(_ context.Context, c config.Config) error { return a.refuses[c.MTU] }

func (a fakeAgent) Settled(ctx context.Context, _ []string) error {
	if err := a.unsettled[a.mtu]; err != nil {
		<-ctx.Done()
		return err
	}
	return nil
}

// start has agents work; call it in a synctest bubble.
func (n *node) start() {
	n.Manager = New(Options{
		Log: slog.New(slog.DiscardHandler), Base: n.base, File: n.file,
		Make: func(c config.Config) (Agent, error) {
			n.agents = append(n.agents, c.MTU)
			return fakeAgent{n, c.MTU}, nil
		},
	})
	var ctx context.Context
	ctx, n.stop = context.WithCancel(n.t.Context())
	n.ended = make(chan error, 1)
	go func() { n.ended <- n.Run(ctx) }()
	synctest.Wait()
}

func (n *node) end() {
	n.t.Helper()
	n.stop()
	if err := <-n.ended; err != nil {
		n.t.Errorf("ended with %v", err)
	}
}

// says has a controller say what holds.
func (n *node) says(a *wire.NodeConfiguration) {
	n.answer = a
	n.Received(a)
	synctest.Wait()
}

// config is a configuration of that MTU.
func nnc(generation int64, mtu int) *wire.NodeConfiguration {
	return &wire.NodeConfiguration{Name: "c", Uid: "u", Generation: generation, Settings: fmt.Appendf(nil, `{"mtu":%d}`, mtu)}
}

// runs checks the MTUs of the agents that have been made, and the report.
func (n *node) runs(when, report string, mtus ...int) {
	n.t.Helper()
	if fmt.Sprint(n.agents) != fmt.Sprint(mtus) {
		n.t.Errorf("%s: agents with MTUs %v, want %v", when, n.agents, mtus)
	}
	r, got := n.Report(), "ConfigMap"
	if r.Applied != nil {
		got = fmt.Sprintf("%s/%d", r.Applied.Name, r.Applied.Generation)
	}
	if r.Refused != nil {
		got += fmt.Sprintf(", refused %s/%d: %s", r.Refused.Name, r.Refused.Generation, r.Refused.Message)
	}
	if r.Problem != "" {
		got += ", problem " + r.Problem
	}
	if !strings.HasPrefix(got, report) || report == "ConfigMap" && got != report {
		n.t.Errorf("%s: reports %q, want %q", when, got, report)
	}
}

// A configuration is applied by a new agent, kept over starts without a controller, and given up
// when it is gone.
func TestApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		n.runs("at first", "ConfigMap", 0)
		n.says(&wire.NodeConfiguration{})
		n.runs("with none", "ConfigMap", 0)
		n.says(nnc(1, 1400))
		n.runs("with one", "c/1", 0, 1400)
		since := n.Report().Applied.Time
		time.Sleep(time.Hour)
		n.says(nnc(1, 1400))
		n.runs("again", "c/1", 0, 1400)
		if n.Report().Applied.Time != since {
			t.Error("the time of what was applied changes")
		}
		n.says(nnc(2, 1400))
		n.runs("with other labels", "c/2", 0, 1400)
		n.says(nnc(1, 1300))
		n.runs("by a controller that lags", "c/2", 0, 1400)
		n.end()

		n.answer = nil
		n.start()
		n.runs("without a controller", "c/2", 0, 1400, 1400)
		n.says(&wire.NodeConfiguration{})
		n.runs("gone", "ConfigMap", 0, 1400, 1400, 0)
		n.end()
		n.start()
		n.runs("gone for good", "ConfigMap", 0, 1400, 1400, 0, 0)
		n.end()
	})
}

// What a node cannot have is refused before anything is changed, and looked at again when a
// controller says it again.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		n.says(nnc(1, 1400))
		for name, bad := range map[string]*wire.NodeConfiguration{
			"unknown field": {Name: "c", Uid: "u", Generation: 2, Settings: []byte(`{"datapath":"netdev"}`)},
			"damaged":       {Name: "c", Uid: "u", Generation: 2, Settings: []byte(`{`)},
			"nothing":       {Name: "c", Uid: "u", Generation: 2},
			"encapsulation": {Name: "c", Uid: "u", Generation: 2, Settings: []byte(`{"encapsulation":"geneve"}`)},
			"small MTU":     nnc(2, 100),
		} {
			n.says(bad)
			n.runs(name, "c/1, refused c/2: ", 0, 1400)
		}
		n.refuses[9000] = errors.New("mtu: 9000 is too large")
		n.says(nnc(3, 9000))
		n.runs("too large", "c/1, refused c/3: mtu: 9000 is too large", 0, 1400)
		if got := n.Status(); got.Name != "c" || got.Generation != 1 || !strings.Contains(got.Refused, "generation 3: mtu: 9000 is too large") {
			t.Errorf("status %+v", got)
		}
		delete(n.refuses, 9000)
		n.says(nnc(3, 9000))
		n.runs("later", "c/3", 0, 1400, 9000)
		n.says(nnc(4, 100))
		n.says(nnc(5, 9000))
		n.runs("mended", "c/5", 0, 1400, 9000)
		n.end()
	})
}

// A configuration that the agent does not come to within a trial is given up, and not tried again
// before it is another one.
func TestTrialFails(t *testing.T) {
	for _, tc := range []struct {
		name  string
		set   func(n *node)
		want  string
		after time.Duration
	}{
		{"not settled", func(n *node) { n.unsettled[1300] = errors.New("physical network lab: no card") }, "physical network lab: no card", trialTimeout},
		{"fails", func(n *node) { n.broken[1300] = errors.New("bad address") }, "bad address", 0},
		{"reaches no controller", func(n *node) { n.unheard[1300] = true }, "no controller can be reached with it", trialTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				tc.set(n)
				n.start()
				n.says(nnc(1, 1400))
				n.says(nnc(2, 1300))
				time.Sleep(tc.after)
				synctest.Wait()
				n.runs("tried", "c/1, refused c/2: "+tc.want, 0, 1400, 1300, 1400)
				n.says(nnc(2, 1300))
				n.runs("said again", "c/1, refused c/2: "+tc.want, 0, 1400, 1300, 1400)
				n.says(nnc(3, 1350))
				n.runs("mended", "c/3", 0, 1400, 1300, 1400, 1350)
				n.end()
			})
		})
	}
}

// An agent that ends in a trial starts with the configuration before; one that was asked to end
// tries again.
func TestEndInTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.unsettled[1300] = errors.New("not yet")
		n.start()
		n.says(nnc(1, 1400))
		n.says(nnc(2, 1300))
		killed, err := os.ReadFile(n.file)
		if err != nil {
			t.Fatal(err)
		}
		n.end()
		delete(n.unsettled, 1300)
		n.start()
		synctest.Wait()
		n.runs("asked to end", "c/2", 0, 1400, 1300, 1400, 1300)
		n.end()

		if err := os.WriteFile(n.file, killed, 0o600); err != nil {
			t.Fatal(err)
		}
		n.agents = nil
		n.start()
		n.runs("killed", "c/1, refused c/2: the agent ended while it tried this configuration", 1400)
		n.end()
		n.start()
		n.runs("started anew", "c/2", 1400, 1400, 1300)
		n.end()
	})
}

// What is on disk and does not go with the ConfigMap any more, or cannot be read, gives way to it.
func TestStartsWithTheConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		n.says(&wire.NodeConfiguration{Name: "c", Uid: "u", Generation: 1, Settings: []byte(`{"bridgeMappings":{"lab":"br-lab"},"mtu":1400}`)})
		n.runs("applied", "c/1", 0, 1400)
		n.end()
		n.base.Uplinks, n.answer = map[string]config.Uplink{"lab": {Interface: "eth2"}}, nil
		n.start()
		n.runs("another ConfigMap", "ConfigMap, refused c/1: with the present ConfigMap: uplinks[lab]", 0, 1400, 0)
		n.end()
		if err := os.WriteFile(n.file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.base.Uplinks = nil
		n.start()
		n.runs("damaged", "ConfigMap", 0, 1400, 0, 0)
		n.end()
	})
}

// An agent that fails with a configuration that has held ends the process.
func TestFailureEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.broken[0] = errors.New("no disk")
		n.start()
		if err := <-n.ended; err == nil || err.Error() != "no disk" {
			t.Errorf("ended with %v", err)
		}
		n.stop()
	})
}

// That an address is not accepted is reported to the API; that controllers are away is not.
func TestProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		n.Failed(status.Error(codes.Unavailable, "connection refused"))
		n.runs("away", "ConfigMap", 0)
		if got := n.Status().Problem; got != "" {
			t.Errorf("a problem without any configuration: %q", got)
		}
		changed := n.Changed()
		n.Failed(status.Error(codes.PermissionDenied, "192.0.2.9 is not an address of node a"))
		<-changed
		n.runs("denied", "ConfigMap, problem 192.0.2.9 is not", 0)
		n.says(nnc(1, 1400))
		n.runs("accepted", "c/1", 0, 1400)
		n.Failed(status.Error(codes.Unavailable, "connection refused"))
		if got := n.Status().Problem; got != "connection refused" {
			t.Errorf("problem %q", got)
		}
		n.end()
	})
}
