// SPDX-License-Identifier: Apache-2.0

package policystream

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/policystream/streamtest"
	"coelan.io/coelan/internal/policystream/wire"
)

// patience bounds what a test waits for.
const patience = 30 * time.Second

// configurations are those of nodes.
type configurations struct {
	changed broadcast.Broadcast

	mu      sync.Mutex
	of      map[string]server.NodeConfiguration
	refused []string
}

func (c *configurations) Of(node string) (server.NodeConfiguration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, known := c.of[node]
	return n, known
}

func (c *configurations) Changed() <-chan struct{} { return c.changed.Changed() }

func (c *configurations) Refused(node string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = append(c.refused, node+": "+err.Error())
}

// set says what holds for a node with these addresses.
func (c *configurations) set(node, name string, addresses ...string) {
	n := server.NodeConfiguration{Answer: &wire.NodeConfiguration{Name: name}}
	for _, a := range addresses {
		n.Addresses = append(n.Addresses, netip.MustParseAddr(a))
	}
	c.mu.Lock()
	c.of[node] = n
	c.mu.Unlock()
	c.changed.Send()
}

// configured is a controller that has configurations.
func configured(t *testing.T) (*streamtest.Controller, *configurations) {
	c := streamtest.Start(t)
	list := &configurations{of: map[string]server.NodeConfiguration{}}
	c.Hub.Configurations = list
	return c, list
}

// follower is an agent that asks for its configuration.
type follower struct {
	answers chan string
	errs    chan error
}

func (f *follower) next(t *testing.T) string {
	t.Helper()
	select {
	case a := <-f.answers:
		return a
	case err := <-f.errs:
		return "error " + status.Code(err).String() + ": " + err.Error()
	case <-time.After(patience):
		t.Fatal("nothing is said")
		return ""
	}
}

// ask has an agent with that token ask without policies, until the test ends.
func ask(t *testing.T, c *streamtest.Controller, token client.Token) *follower {
	f := &follower{answers: make(chan string, 100), errs: make(chan error, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.configuration().Run(ctx, c.ClientOptions("").Controllers, streamtest.Namespace, token)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return f
}

func (f *follower) configuration() client.Configuration {
	return client.Configuration{
		Log: slog.New(slog.DiscardHandler), Received: func(a *wire.NodeConfiguration) { f.answers <- a.GetName() },
		Failed: func(err error) {
			select {
			case f.errs <- err:
			default:
			}
		},
	}
}

// A configuration is for calls with the node's token from one of its addresses.
func TestConfigurationOfOthers(t *testing.T) {
	c, list := configured(t)
	list.set("a", "of-a", "127.0.0.1")
	list.set("b", "of-b", "192.0.2.2", "2001:db8::2")
	list.set("none", "of-none")
	for name, tc := range map[string]struct {
		token client.Token
		want  string
	}{
		"unknown token":         {func() (string, error) { return "garbage", nil }, "the token is unknown"},
		"no token":              {func() (string, error) { return "", nil }, "error Unauthenticated: "},
		"a controller":          {streamtest.TokenOf("controller"), "only an agent has a configuration"},
		"another node's":        {streamtest.TokenOf("b"), "desc = 127.0.0.1 is not an address of node b: its configuration is for 192.0.2.2, 2001:db8::2"},
		"one without addresses": {streamtest.TokenOf("none"), "desc = node none has no address in the API, and 127.0.0.1 asks"},
		"its own":               {streamtest.TokenOf("a"), "of-a"},
	} {
		got := ask(t, c, tc.token).next(t)
		if !strings.Contains(got, tc.want) || strings.HasPrefix(got, "of-") && got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	list.mu.Lock()
	defer list.mu.Unlock()
	if all := strings.Join(list.refused, "\n"); !strings.Contains(all, "b: 127.0.0.1 is not an address of node b") || strings.Contains(all, "a: ") {
		t.Errorf("refused: %s", all)
	}
}

// What holds is sent at first and when it is another one; a node that is not known yet waits, and
// one that loses its address is refused from then on.
func TestConfigurationChanges(t *testing.T) {
	c, list := configured(t)
	f := ask(t, c, streamtest.TokenOf("a"))
	list.set("b", "of-b", "127.0.0.1")
	list.set("a", "first", "127.0.0.1")
	for _, want := range []string{"first", "second", ""} {
		if got := f.next(t); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		next := map[string]string{"first": "second", "second": ""}
		name, more := next[want]
		if !more {
			break
		}
		list.set("b", "other", "127.0.0.1")
		list.set("a", want, "127.0.0.1", "192.0.2.1")
		list.set("a", name, "127.0.0.1")
	}
	list.set("a", "third", "192.0.2.1")
	if got := f.next(t); !strings.Contains(got, "desc = 127.0.0.1 is not an address of node a") {
		t.Errorf("from an address that was its own: %q", got)
	}
	list.set("a", "third", "192.0.2.1", "127.0.0.1")
	for got := f.next(t); got != "third"; got = f.next(t) {
		if !strings.HasPrefix(got, "error PermissionDenied") {
			t.Errorf("%q, want third", got)
		}
	}
}

// Configurations come on the connection of the policies, and go on when a controller ends streams.
func TestConfigurationBesidePolicies(t *testing.T) {
	c, list := configured(t)
	c.SetStreamAge(200 * time.Millisecond)
	c.Set("a", view())
	list.set("a", "first", "127.0.0.1")
	f := &follower{answers: make(chan string, 1000), errs: make(chan error, 100)}
	o := c.ClientOptions("a")
	o.Beside = f.configuration().Follow
	a, _ := streamtest.StartAgent(t, o)
	a.Await(t, "the policies", has(a, view()))
	for range 3 {
		if got := f.next(t); got != "first" {
			t.Errorf("%q, want first", got)
		}
	}
	list.set("a", "second", "127.0.0.1")
	for got := f.next(t); got != "second"; got = f.next(t) {
		if got != "first" {
			t.Errorf("%q, want second", got)
		}
	}
}

// A controller of a release without configurations serves policies.
func TestConfigurationOfOlderControllers(t *testing.T) {
	c := streamtest.Start(t)
	c.Set("a", view())
	f := &follower{answers: make(chan string, 1), errs: make(chan error, 1)}
	o := c.ClientOptions("a")
	o.Beside = f.configuration().Follow
	a, _ := streamtest.StartAgent(t, o)
	a.Await(t, "the policies", has(a, view()))
	if code := configurationCode(t, c); code != codes.Unimplemented {
		t.Errorf("asked for a configuration: %s", code)
	}
	if len(f.answers)+len(f.errs) > 0 {
		t.Error("something is said of a configuration")
	}
}

// configurationCode is what comes of one call for a configuration.
func configurationCode(t *testing.T, c *streamtest.Controller) codes.Code {
	t.Helper()
	addresses, roots := c.ClientOptions("a").Controllers.Current()
	conn, err := client.Dial(addresses[0], wire.ServerName(streamtest.Namespace), roots, streamtest.TokenOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := wire.NewPoliciesClient(conn).Configuration(ctx, &wire.ConfigurationRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	return status.Code(err)
}
