// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"coelan.io/coelan/internal/sandbox"
)

// testEvents starts pods where they cannot start, reads why in their Events,
// and removes the reason.
func testEvents(t *testing.T) {
	for _, c := range []struct {
		name            string
		breaks, repairs func(context.Context) error
		says            string
	}{
		{
			name:    "no agent",
			breaks:  func(ctx context.Context) error { return world.Stop(ctx, worker1, sandbox.Agent, syscall.SIGTERM) },
			repairs: func(ctx context.Context) error { return world.Start(ctx, worker1, sandbox.Agent) },
			says:    "agent",
		},
		{
			// The switch goes on, so that the node stays reachable, but no port can be made.
			name:    "database hangs",
			breaks:  func(ctx context.Context) error { return world.Kill(ctx, worker1, "ovsdb-server", syscall.SIGSTOP) },
			repairs: func(ctx context.Context) error { return world.Kill(ctx, worker1, "ovsdb-server", syscall.SIGCONT) },
			says:    "Open vSwitch",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := within(t, 3*time.Minute)
			if err := c.breaks(ctx); err != nil {
				t.Fatal(err)
			}
			pod := strings.ReplaceAll(c.name, " ", "-")
			makePod(ctx, t, sleeper(pod, worker1))
			message, err := warning(ctx, pod, c.says)
			t.Logf("event: %s", message)
			if repaired := c.repairs(context.WithoutCancel(ctx)); repaired != nil {
				t.Fatal(repaired)
			}
			if err != nil {
				t.Error(err)
			}
			if err := world.waitReady(ctx, pod); err != nil {
				t.Fatal(err)
			}
			if err := ask(ctx, t, pod, "web2"); err != nil {
				t.Error(err)
			}
			removePods(ctx, t, pod)
			world.healthy(ctx, t)
		})
	}
}

// warning waits for an Event of type Warning about a pod, or another object of that key, with a
// message that has the text. Those about objects of no namespace are in "default".
func warning(ctx context.Context, key, text string) (string, error) {
	namespace, pod := split(key)
	events := cache.NewListWatchFromClient(world.api.CoreV1().RESTClient(), "events", namespace,
		fields.OneTermEqualSelector("involvedObject.name", pod))
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var found string
	var others []string
	_, err := watchtools.UntilWithSync(ctx, events, &corev1.Event{}, nil, func(e watch.Event) (bool, error) {
		event, ok := e.Object.(*corev1.Event)
		if !ok || event.Type != corev1.EventTypeWarning {
			return false, nil
		}
		found = event.Source.Component + ", " + event.Reason + ": " + event.Message
		others = append(others, found)
		return strings.Contains(event.Message, text), nil
	})
	if err != nil {
		return "", fmt.Errorf("no warning about pod %s says %q: %w; there are: %q", pod, text, err, others)
	}
	return found, nil
}
