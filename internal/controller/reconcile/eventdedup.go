// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/translate"
)

// EventDedup remembers emitted Events, so that each problem is reported once until it is solved.
type EventDedup struct {
	Kinds []string         // of the objects
	known map[finding]bool // nil before the first time
}

// finding is what makes an Event another one.
type finding struct {
	object          types.UID
	reason, message string
}

// Problem is a finding and the object that it is about.
type Problem struct {
	About           *corev1.ObjectReference
	Reason, Message string
}

// Report makes an Event of each problem that has none. The first time it asks the API server which
// Events an earlier leader has made.
func (t *EventDedup) Report(ctx context.Context, a *Access, list []Problem) error {
	if t.known == nil {
		if err := t.recall(ctx, a); err != nil {
			return err
		}
	}
	known := make(map[finding]bool, len(list))
	for _, n := range list {
		f := finding{n.About.UID, n.Reason, n.Message}
		if !t.known[f] && !known[f] {
			a.Events.Event(n.About, corev1.EventTypeWarning, f.reason, f.message)
		}
		known[f] = true
	}
	t.known = known
	return nil
}

// EventSource is the component that the controller's Events are from.
const EventSource = "coelan-controller"

func (t *EventDedup) recall(ctx context.Context, a *Access) error {
	known := map[finding]bool{}
	for _, kind := range t.Kinds {
		events := &corev1.EventList{}
		if err := a.Live.List(ctx, events,
			client.MatchingFields{"source": EventSource, "involvedObject.kind": kind}); err != nil {
			return fmt.Errorf("list Events: %w", err)
		}
		for _, e := range events.Items {
			known[finding{e.InvolvedObject.UID, e.Reason, e.Message}] = true
		}
	}
	t.known = known
	return nil
}

// MessageOf leaves out what the Event says already: which object it is about.
func MessageOf(p translate.Problem, about string) string {
	switch {
	case p.Object != about:
		return p.Error()
	case p.Field == "":
		return p.Text
	}
	return strings.TrimPrefix(p.Error(), p.Object+": ")
}
