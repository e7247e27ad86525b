// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/translate"
)

// told remembers which problems of Services there are Events of, so that each is told once, and again only if it has been
// solved meanwhile.
type told struct {
	known map[finding]bool // nil before the first time
}

// finding is what makes an Event another one.
type finding struct {
	service         types.UID
	reason, message string
}

// tell makes Events of the problems that are new. The first time it asks the API server which ones a leader before this one
// has told of.
func (t *told) tell(ctx context.Context, a *access, problems []translate.ServiceProblem) error {
	if t.known == nil {
		if err := t.recall(ctx, a); err != nil {
			return err
		}
	}
	known := make(map[finding]bool, len(problems))
	for _, p := range problems {
		f := finding{types.UID(p.UID), string(p.Reason), messageOf(p)}
		if !t.known[f] && !known[f] {
			a.events.Event(serviceOf(p), corev1.EventTypeWarning, f.reason, f.message)
		}
		known[f] = true
	}
	t.known = known
	return nil
}

// eventSource is the component that the controller's Events are from.
const eventSource = "coelan-controller"

func (t *told) recall(ctx context.Context, a *access) error {
	events := &corev1.EventList{}
	if err := a.live.List(ctx, events, client.MatchingFields{"source": eventSource, "involvedObject.kind": "Service"}); err != nil {
		return fmt.Errorf("list Events: %w", err)
	}
	t.known = map[finding]bool{}
	for _, e := range events.Items {
		t.known[finding{e.InvolvedObject.UID, e.Reason, e.Message}] = true
	}
	return nil
}

// messageOf leaves out what the Event says already: which Service it is.
func messageOf(p translate.ServiceProblem) string {
	switch {
	case p.Object != "service "+p.Service.String():
		return p.Problem.Error()
	case p.Field == "":
		return p.Text
	}
	return strings.TrimPrefix(p.Problem.Error(), p.Object+": ")
}

func serviceOf(p translate.ServiceProblem) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Service.Namespace, Name: p.Service.Name, UID: types.UID(p.UID)},
	}
}
