// SPDX-License-Identifier: Apache-2.0

// Package keepertest has tests that all keepers of Secrets have to pass.
package keepertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"coelan.io/coelan/internal/heartbeat"
)

// Stuck runs a keeper, which writes a Secret at first, against an API that does not answer: the
// loop of that name has to fail the liveness probe until the write returns.
func Stuck(t *testing.T, loop string, run func(context.Context, *fake.Clientset, *heartbeat.Monitor) error) {
	t.Helper()
	const bound = time.Millisecond
	api, monitor := fake.NewClientset(), heartbeat.New(bound)
	writes, release := make(chan struct{}, 10), make(chan struct{})
	api.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		writes <- struct{}{}
		<-release
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, api, monitor) }()
	<-writes
	time.Sleep(2 * bound) //nolint:forbidigo // the bound is over, however long this takes
	if err := monitor.Check(); err == nil || !strings.Contains(err.Error(), "loop "+loop+": stuck") {
		t.Errorf("a stuck keeper: %v", err)
	}
	close(release)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := monitor.Check(); err != nil {
		t.Errorf("after it has ended: %v", err)
	}
}
