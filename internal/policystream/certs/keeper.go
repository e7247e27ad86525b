// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/wake"
)

// Secret is the one with the bundle.
const Secret = "coelan-controller-tls"

// The keys of the Secret.
const (
	authorityKey = "ca.key"
	serverCert   = corev1.TLSCertKey
	serverKey    = corev1.TLSPrivateKeyKey
)

// Keeper has the server's certificate. Every replica has one; whoever finds first that something has to be written writes it,
// and the others read it.
type Keeper struct {
	api       kubernetes.Interface
	namespace string
	log       *slog.Logger
	server    atomic.Pointer[tls.Certificate]
	ready     chan struct{}
	now       func() time.Time
}

// NewKeeper is one for the controllers of that namespace.
func NewKeeper(api kubernetes.Interface, namespace string, log *slog.Logger) *Keeper {
	return &Keeper{api: api, namespace: namespace, log: log, ready: make(chan struct{}), now: time.Now}
}

// Ready is closed when there is a certificate.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// Certificate is the present one, for tls.Config.GetCertificate.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.server.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// The pauses between two tries to write.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 30 * time.Second
)

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	events := wake.New()
	secrets := k.only(Secret).Core().V1().Secrets().Informer()
	maps := k.only(wire.ConfigMap).Core().V1().ConfigMaps().Informer()
	for _, informer := range []cache.SharedIndexInformer{secrets, maps} {
		if _, err := informer.AddEventHandler(wake.OnEvents(events.Kick, nil)); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{}, 2)
	for _, informer := range []cache.SharedIndexInformer{secrets, maps} {
		go func() { informer.RunWithContext(ctx); done <- struct{}{} }()
	}
	defer func() { stop(); <-done; <-done }()
	if !cache.WaitForCacheSync(ctx.Done(), secrets.HasSynced, maps.HasSynced) {
		return nil
	}
	events.Kick()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := firstPause; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-events:
		case <-timer.C:
		}
		again, err := k.look(ctx, find[corev1.Secret](secrets), find[corev1.ConfigMap](maps))
		switch {
		case err == nil:
			pause = firstPause
			timer.Reset(again.Sub(k.now()))
		case conflict(err): // somebody else has written, of which the watch will tell
			timer.Reset(lastPause)
		default:
			k.log.Warn("the certificate of the policies' server cannot be kept, trying again", "err", err)
			timer.Reset(pause)
			pause = min(2*pause, lastPause)
		}
	}
}

// errNewer says that the watch has not told of the present Secret yet.
var errNewer = errors.New("somebody else has written a newer one")

func conflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errNewer)
}

// only is for watching one object.
func (k *Keeper) only(name string) informers.SharedInformerFactory {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return informers.NewSharedInformerFactoryWithOptions(k.api, 0, informers.WithNamespace(k.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector }))
}

// find returns the one object of an informer, or nil.
func find[T any](informer cache.SharedIndexInformer) *T {
	for _, o := range informer.GetStore().List() {
		if v, ok := o.(*T); ok {
			return v
		}
	}
	return nil
}

// look compares what is there with what should be, and writes it. Agents are told of an authority before any server uses it.
func (k *Keeper) look(ctx context.Context, secret *corev1.Secret, roots *corev1.ConfigMap) (time.Time, error) {
	var have Bundle
	if secret != nil {
		have = Bundle{
			Roots: secret.Data[wire.RootsKey], AuthorityKey: secret.Data[authorityKey],
			Cert: secret.Data[serverCert], Key: secret.Data[serverKey],
		}
	}
	name := wire.ServerName(k.namespace)
	bundle, again, err := Renew(have, name, k.now())
	if err != nil {
		return time.Time{}, err
	}
	if !bytes.Equal(bundle.Cert, have.Cert) || !bytes.Equal(bundle.Roots, have.Roots) {
		k.log.Info("a new certificate of the policies' server is made", "secret", Secret, "until", again)
		// The watch tells of it, and only then it is used: if two write at a time, one of them is used.
		return again, k.writeSecret(ctx, secret, bundle)
	}
	if roots == nil || roots.Data[wire.RootsKey] != string(bundle.Roots) {
		if err := k.publish(ctx, secret, roots, bundle.Roots); err != nil {
			return time.Time{}, err
		}
	}
	server, err := bundle.Server(name, k.now())
	if err != nil {
		return time.Time{}, err
	}
	if k.server.Swap(server) == nil {
		close(k.ready)
	}
	return again, nil
}

var labels = map[string]string{"app.kubernetes.io/name": "coelan", "app.kubernetes.io/component": "controller"}

func (k *Keeper) writeSecret(ctx context.Context, old *corev1.Secret, b Bundle) error {
	api := k.api.CoreV1().Secrets(k.namespace)
	data := map[string][]byte{wire.RootsKey: b.Roots, authorityKey: b.AuthorityKey, serverCert: b.Cert, serverKey: b.Key}
	var err error
	if old == nil {
		_, err = api.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: Secret, Labels: labels}, Type: corev1.SecretTypeTLS, Data: data,
		}, metav1.CreateOptions{})
	} else {
		now := old.DeepCopy()
		now.Data = data
		_, err = api.Update(ctx, now, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", k.namespace, Secret, err)
	}
	return nil
}

// publish tells agents of the authorities. What they are told now may be of a newer Secret than the one that is known here, and then stays:
// others use that one's certificate already.
func (k *Keeper) publish(ctx context.Context, known *corev1.Secret, old *corev1.ConfigMap, roots []byte) error {
	secret, err := k.api.CoreV1().Secrets(k.namespace).Get(ctx, Secret, metav1.GetOptions{})
	if err == nil && secret.ResourceVersion != known.ResourceVersion || apierrors.IsNotFound(err) {
		err = errNewer
	}
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", k.namespace, Secret, err)
	}
	api := k.api.CoreV1().ConfigMaps(k.namespace)
	data := map[string]string{wire.RootsKey: string(roots)}
	if old == nil {
		_, err = api.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: wire.ConfigMap, Labels: labels}, Data: data,
		}, metav1.CreateOptions{})
	} else {
		now := old.DeepCopy()
		now.Data = data
		_, err = api.Update(ctx, now, metav1.UpdateOptions{})
	}
	if err != nil { // perhaps another replica was faster: the watch tells what it wrote
		return fmt.Errorf("config map %s/%s: %w", k.namespace, wire.ConfigMap, err)
	}
	return nil
}
