// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// clusterDefinition is the name of the definition of ClusterNetworkPolicies, which an API
// server may lack. It may come and go at any time; a policy that is created right after it is
// expected to have effect.
var clusterDefinition = policyapi.Resource + "." + policyapi.GroupVersion.Group

// OnlyClusterDefinition has no other definition watched: they are large.
func OnlyClusterDefinition() cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", clusterDefinition)}
}

// serves is whether the API server has objects of the version that is read.
func serves(d *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}) && slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == policyapi.GroupVersion.Version && v.Served
	})
}

// definitionKind is the kind of definitions.
func definitionKind() client.Object { return &apiextensionsv1.CustomResourceDefinition{} }

// definition knows whether ClusterNetworkPolicies are served.
type definition struct {
	wake   trigger.Trigger // has an element if served may have changed
	served bool            // guarded by policies.mu
	// version is the resource version of the definition; guarded by policies.mu.
	version uint64
	// watched is of the one goroutine that follows.
	watched bool
}

// watchDefinition has it noted whether ClusterNetworkPolicies are served.
func (p *Feed) watchDefinition(ctx context.Context) (toolscache.InformerSynced, error) {
	p.progress.use(definitionKind(), true)
	return p.watch(ctx, definitionKind(), func(o any, gone bool) {
		if last, unknown := o.(toolscache.DeletedFinalStateUnknown); unknown {
			o = last.Obj
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.definition.version = max(p.definition.version,
			reconcile.VersionOf(o.(*apiextensionsv1.CustomResourceDefinition)))
		p.definition.served = !gone && serves(o.(*apiextensionsv1.CustomResourceDefinition))
		p.definition.wake.Fire()
	})
}

// The pauses between two attempts to watch a kind after its definition was created: the API server
// serves it a moment later.
const (
	firstServed = 20 * time.Millisecond
	lastServed  = time.Second
)

func (p *Feed) served() bool {
	served, _ := p.defined()
	return served
}

func (p *Feed) defined() (served bool, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.definition.served, p.definition.version
}

// settled says that the policies are as the definition of that version asks for.
func (p *Feed) settled(version uint64) {
	p.progress.reached(definitionKind(), version)
}

// followDefinition watches ClusterNetworkPolicies if they are served, and else forgets
// them. It returns when those that there are at that time are known, or are served no more;
// false: ctx has ended.
func (p *Feed) followDefinition(ctx context.Context) bool {
	for backoff := retry.New(firstServed, lastServed); ; {
		served, version := p.defined()
		switch {
		case served == p.definition.watched:
			p.settled(version)
			return true
		case !served:
			p.forgetClusterPolicies(ctx)
			p.settled(version)
			return true
		}
		synced, err := p.watch(ctx, policyapi.New(), p.note)
		if err == nil {
			p.definition.watched = true
			p.progress.use(policyapi.New(), true)
			if !toolscache.WaitForCacheSync(ctx.Done(), func() bool { return synced() || !p.served() }) {
				return false
			}
			p.settled(version)
			return true
		}
		p.log.Warn("cannot watch ClusterNetworkPolicies, retrying", "err", err)
		if !backoff.Wait(ctx) {
			return false
		}
	}
}

// followDefinitions is followDefinition whenever the definition changes, until ctx ends.
func (p *Feed) followDefinitions(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.definition.wake:
			p.followDefinition(ctx)
		}
	}
}

// forgetClusterPolicies undoes watch for them. With their definition they have gone as well, but a
// watch may have missed that.
func (p *Feed) forgetClusterPolicies(ctx context.Context) {
	if err := p.cache.RemoveInformer(ctx, policyapi.New()); err != nil {
		p.log.Warn("cannot stop watching ClusterNetworkPolicies, which the API no longer serves", "err", err)
	}
	p.definition.watched = false
	p.progress.use(policyapi.New(), false)
	p.mu.Lock()
	defer p.mu.Unlock()
	for ref := range p.objects {
		if ref.Kind == intent.ClusterNetworkPolicy {
			o := policyapi.New()
			o.SetName(ref.Name)
			p.pending[watchedOf(o)] = event{o, true}
		}
	}
	p.wake.Fire()
}
