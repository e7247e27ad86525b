// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var order = []Condition{{Name: "node"}, {Name: "switch", Limits: true}, {Name: "runtime", Last: true}}

func TestSet(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler), order...)
	for _, c := range order[:2] {
		if err := s.Attaching(); err == nil || err.Error() != c.Name+": "+ErrStarting.Error() {
			t.Errorf("before %s: %v", c.Name, err)
		}
		changed := s.Changed()
		s.Set(c.Name, nil)
		select {
		case <-changed:
		default:
			t.Errorf("nothing was told that %s is met", c.Name)
		}
	}
	if err := s.Attaching(); err != nil {
		t.Errorf("pods cannot be attached: %v", err)
	}
	if err := s.Ready(); err == nil {
		t.Error("ready before the last condition is met")
	}
	s.Set("runtime", nil)
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
	broken := errors.New("broken")
	s.Set("switch", broken)
	changed := s.Changed()
	s.Set("switch", errors.New("broken"))
	select {
	case <-changed:
		t.Error("the same outcome counted as a change")
	default:
	}
	if err := s.Attaching(); !errors.Is(err, broken) {
		t.Errorf("attaching: %v", err)
	}
	if err := s.Forwarding(); !errors.Is(err, broken) {
		t.Errorf("forwarding: %v", err)
	}
	want := map[string]string{"node": "", "switch": "broken", "runtime": ""}
	if diff := cmp.Diff(want, s.All()); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
}

func TestForwardingNeedsSomeConditions(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler), order...)
	s.Set("switch", nil)
	if err := s.Forwarding(); err != nil {
		t.Error(err)
	}
	if s.Attaching() == nil {
		t.Error("pods can be attached while the node is not known")
	}
}

func TestAwait(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler), order...)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var unmet *UnmetError
	if err := s.Await(ended); !errors.As(err, &unmet) || unmet.Condition.Name != "node" {
		t.Errorf("after the wait has ended: %v", err)
	}
	met := make(chan error)
	go func() { met <- s.Await(t.Context()) }()
	s.Set("node", nil)
	s.Set("switch", nil)
	if err := <-met; err != nil {
		t.Error(err)
	}
}
