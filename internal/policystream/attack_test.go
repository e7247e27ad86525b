// SPDX-License-Identifier: Apache-2.0

package policystream

import (
	"crypto/tls"
	"net"
	"testing"

	"google.golang.org/grpc/codes"

	"coelan.io/coelan/internal/policystream/streamtest"
	"coelan.io/coelan/internal/policystream/wire"
)

// Something that holds more connections than there are places, half of them without a
// handshake, and shows garbage for tokens keeps neither those agents away that are connected
// nor those that come.
func TestStrangersKeepNoAgentAway(t *testing.T) {
	c := streamtest.Start(t)
	c.Set("a", view())
	c.Set("b", view())
	a, _ := streamtest.StartAgent(t, c.ClientOptions("a"))
	a.Await(t, "its view", has(a, view()))

	const halfOpen, idle, places = 1500, 700, 512
	_, roots := c.ClientOptions("x").Controllers.Current()
	config := &tls.Config{RootCAs: roots, ServerName: wire.ServerName(streamtest.Namespace), NextProtos: []string{"h2"}}
	for i := range halfOpen + idle {
		conn, err := net.Dial("tcp", c.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i < halfOpen {
			_, _ = conn.Write([]byte{22, 3, 1}) // the beginning of a record
		} else {
			// One that is displaced is as good.
			_ = tls.Client(conn, config).HandshakeContext(t.Context())
		}
	}
	for range 20 {
		if code := call(t, c, func() (string, error) { return "garbage", nil }); code != codes.Unauthenticated && code != codes.Unavailable {
			t.Errorf("garbage: %s", code)
		}
	}
	b, _ := streamtest.StartAgent(t, c.ClientOptions("b"))
	b.Await(t, "its view", has(b, view()))
	if s := a.Status(); s.Streams != 1 {
		t.Errorf("the agent that was connected has had %d streams", s.Streams)
	}
	if h, s := c.Gate.Peak(); h > places || s > places {
		t.Errorf("%d handshakes and %d strangers at a time", h, s)
	}
	if c.Gate.Known() != 2 || c.Refused() < halfOpen-places {
		t.Errorf("%d connections of agents; %d were refused", c.Gate.Known(), c.Refused())
	}
}
