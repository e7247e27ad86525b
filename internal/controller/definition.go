// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/wake"
)

// clusterDefinition is the name of the definition of ClusterNetworkPolicies, which an API server may lack. It may come and go
// at any time; who creates a policy right after it expects that to have effect.
var clusterDefinition = policyapi.Resource + "." + policyapi.GroupVersion.Group

// onlyClusterDefinition has no other definition watched: they are large.
func onlyClusterDefinition() cache.ByObject {
	return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", clusterDefinition)}
}

// slimDefinition is what says whether it is served.
func slimDefinition(o *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: slimMeta(o.ObjectMeta)}
	d.Status.Conditions = o.Status.Conditions
	for _, v := range o.Spec.Versions {
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: v.Name, Served: v.Served})
	}
	return d
}

// serves is whether the API server has objects of the version that is read.
func serves(d *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}) && slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == policyapi.GroupVersion.Version && v.Served
	})
}

// definition knows whether ClusterNetworkPolicies are served.
type definition struct {
	wake   wake.Wake // has an element if served may have changed
	served bool      // guarded by policies.mu
	// watched is of the one goroutine that follows.
	watched bool
}

// watchDefinition has it noted whether ClusterNetworkPolicies are served.
func (p *policies) watchDefinition(ctx context.Context) (toolscache.InformerSynced, error) {
	return p.watch(ctx, &apiextensionsv1.CustomResourceDefinition{}, func(o any, gone bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.definition.served = !gone && serves(o.(*apiextensionsv1.CustomResourceDefinition))
		p.definition.wake.Kick()
	})
}

// The pauses between two tries to watch a kind whose definition has just come: the API server serves it a moment later.
const (
	firstServed = 20 * time.Millisecond
	lastServed  = time.Second
)

func (p *policies) served() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.definition.served
}

// followDefinition watches ClusterNetworkPolicies if they are served, and else forgets them. It returns when those that there
// are at that time are known, or are served no more; false: ctx has ended.
func (p *policies) followDefinition(ctx context.Context) bool {
	for pause := firstServed; ; pause = min(2*pause, lastServed) {
		switch served := p.served(); {
		case served == p.definition.watched:
			return true
		case !served:
			p.forgetClusterPolicies(ctx)
			return true
		}
		synced, err := p.watch(ctx, policyapi.New(), p.note)
		if err == nil {
			p.definition.watched = true
			return toolscache.WaitForCacheSync(ctx.Done(), func() bool { return synced() || !p.served() })
		}
		p.log.Warn("ClusterNetworkPolicies cannot be watched, trying again", "err", err)
		if !wait(ctx, pause) {
			return false
		}
	}
}

// followDefinitions is followDefinition whenever the definition changes, until ctx ends.
func (p *policies) followDefinitions(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.definition.wake:
			p.followDefinition(ctx)
		}
	}
}

// forgetClusterPolicies undoes watch for them. With their definition they have gone as well, but a watch may have missed that.
func (p *policies) forgetClusterPolicies(ctx context.Context) {
	if err := p.cache.RemoveInformer(ctx, policyapi.New()); err != nil {
		p.log.Warn("ClusterNetworkPolicies are still watched, though the API has them no more", "err", err)
	}
	p.definition.watched = false
	p.mu.Lock()
	defer p.mu.Unlock()
	for ref := range p.objects {
		if ref.Kind == intent.ClusterNetworkPolicy {
			p.pending[watched{typeOf[*unstructured.Unstructured](), types.NamespacedName{Name: ref.Name}}] = nil
		}
	}
	p.wake.Kick()
}
