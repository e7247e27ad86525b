// SPDX-License-Identifier: Apache-2.0

package portstatus

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agent/kube"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/translate"
)

// resync puts everything into the queue once the API is heard of: this agent may have missed what
// came and went before it started. Ports that others have to know of are put back when they vanish.
func (p *Publisher) resync(ctx context.Context) {
	if _, ok := p.View.Await(ctx, func(s apicache.State) bool { return s.Listed(kube.Ports) }); !ok {
		return
	}
	p.Changed(p.Store.List()...)
	for backoff := retry.New(minRetry, maxRetry); ; {
		ports, err := p.API.NodePorts(ctx)
		if apierrors.IsNotFound(err) {
			return // there is no such kind
		}
		if err == nil {
			for _, o := range ports {
				p.queue.Add(item{port: o.Namespace + "/" + o.Name})
			}
			break
		}
		if !backoff.Wait(ctx) {
			return
		}
	}
	for _, b := range p.Singles.Singles() {
		p.queue.Add(item{port: b.Spec.Port})
	}
	p.guard(ctx)
}

// guard puts fixed Ports into the queue that the view lacks.
func (p *Publisher) guard(ctx context.Context) {
	for {
		changed := p.View.Changes()
		s := p.View.State()
		for _, at := range p.Store.List() {
			if !translate.Fixed(at) || s.Ports.Get(at.PortKey()) != nil {
				continue
			}
			if _, wanted := p.attached(at.PortKey()); wanted {
				p.queue.AddRateLimited(item{port: at.PortKey()})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
