// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/translate"
)

// told remembers which problems of objects there are Events of, so that each is told once, and again only if it has been
// solved meanwhile.
type told struct {
	kinds []string         // of the objects
	known map[finding]bool // nil before the first time
}

// finding is what makes an Event another one.
type finding struct {
	object          types.UID
	reason, message string
}

// news is a finding and the object that it is about.
type news struct {
	about           *corev1.ObjectReference
	reason, message string
}

// tell makes Events of the news that are new. The first time it asks the API server which ones a leader before this one has
// told of.
func (t *told) tell(ctx context.Context, a *access, list []news) error {
	if t.known == nil {
		if err := t.recall(ctx, a); err != nil {
			return err
		}
	}
	known := make(map[finding]bool, len(list))
	for _, n := range list {
		f := finding{n.about.UID, n.reason, n.message}
		if !t.known[f] && !known[f] {
			a.events.Event(n.about, corev1.EventTypeWarning, f.reason, f.message)
		}
		known[f] = true
	}
	t.known = known
	return nil
}

// eventSource is the component that the controller's Events are from.
const eventSource = "coelan-controller"

func (t *told) recall(ctx context.Context, a *access) error {
	known := map[finding]bool{}
	for _, kind := range t.kinds {
		events := &corev1.EventList{}
		if err := a.live.List(ctx, events, client.MatchingFields{"source": eventSource, "involvedObject.kind": kind}); err != nil {
			return fmt.Errorf("list Events: %w", err)
		}
		for _, e := range events.Items {
			known[finding{e.InvolvedObject.UID, e.Reason, e.Message}] = true
		}
	}
	t.known = known
	return nil
}

// ofServices is told of Services.
func ofServices() told { return told{kinds: []string{"Service"}} }

func newsOfServices(problems []translate.ServiceProblem) []news {
	list := make([]news, len(problems))
	for i, p := range problems {
		list[i] = news{&corev1.ObjectReference{
			APIVersion: "v1", Kind: "Service", Namespace: p.Service.Namespace, Name: p.Service.Name, UID: types.UID(p.UID),
		}, string(p.Reason), messageOf(p.Problem, "service "+p.Service.String())}
	}
	return list
}

// messageOf leaves out what the Event says already: which object it is about.
func messageOf(p translate.Problem, about string) string {
	switch {
	case p.Object != about:
		return p.Error()
	case p.Field == "":
		return p.Text
	}
	return strings.TrimPrefix(p.Error(), p.Object+": ")
}
