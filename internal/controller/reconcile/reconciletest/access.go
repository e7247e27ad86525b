// SPDX-License-Identifier: Apache-2.0

// Package reconciletest gives reconcilers an API in memory, for tests that depend on timestamps,
// which an API server does not let a test set.
package reconciletest

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
)

// maxEvents is how many Events fit before a test reads them.
const maxEvents = 100

// Access returns one to an API with these objects. Its Events are those of a record.FakeRecorder.
func Access(objects ...client.Object) *reconcile.Access {
	b := fake.NewClientBuilder().WithScheme(reconcile.NewScheme()).WithObjects(objects...).WithStatusSubresource(
		&v1alpha1.Port{}, &v1alpha1.AddressBlock{}, &v1alpha1.Network{}, &v1alpha1.Router{},
		&v1alpha1.LoadBalancerPool{}, &v1alpha1.FloatingIP{}, &v1alpha1.Egress{}, &v1alpha1.NodeNetworkConfig{},
		&v1alpha1.SecurityGroup{}, &corev1.Service{})
	if err := reconcile.AddIndexes(context.Background(), indexer{b}); err != nil {
		panic(err) // an indexer returns none
	}
	// The API server finds Events by these, without an index.
	b.WithIndex(&corev1.Event{}, "source", func(o client.Object) []string {
		return []string{o.(*corev1.Event).Source.Component}
	}).
		WithIndex(&corev1.Event{}, "involvedObject.kind", func(o client.Object) []string {
			return []string{o.(*corev1.Event).InvolvedObject.Kind}
		})
	c := b.Build()
	return &reconcile.Access{Client: c, Live: c, Events: record.NewFakeRecorder(maxEvents)}
}

// indexer takes the indexes for a fake client.
type indexer struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, o client.Object, field string, value client.IndexerFunc) error {
	i.WithIndex(o, field, value)
	return nil
}
