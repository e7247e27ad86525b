// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/restconf"
	"coelan.io/coelan/internal/restconf/mapping"
	"coelan.io/coelan/internal/retry"
)

// What the cluster has, and how often each request is measured.
const (
	restconfNetworks = 1000
	restconfServices = 5000
	restconfRounds   = 100
	restconfLists    = 10
	restconfData     = "/restconf/data/"
)

// restconfSite is RESTCONF over an API, and a client of each.
type restconfSite struct {
	client  client.Client
	http    *http.Client
	address string
	token   string
}

// measureRESTCONF compares requests of RESTCONF with the same of the Kubernetes API, by turns.
func measureRESTCONF(ctx context.Context) ([]Result, error) {
	a, c, end, err := launchAPI(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	s, stop, err := serveRESTCONF(ctx, a, c)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := s.fill(ctx); err != nil {
		return nil, err
	}
	var results []Result
	for _, m := range []struct {
		name   string
		rounds int
		ours   func(ctx context.Context, i int) error
		theirs func(ctx context.Context, i int) error
	}{
		{"restconf-write", restconfRounds, s.putNetwork, s.updateNetwork},
		{"restconf-get-one", restconfRounds, s.getNetwork, s.readNetwork},
		{"restconf-get-1000", restconfLists, s.getNetworks, s.readNetworks},
		{"restconf-elan-get-1000", restconfLists, s.getInstances, s.readNetworks},
		{"restconf-service-write-5000", restconfRounds, s.patchService, s.updateService},
	} {
		var took [2][]float64
		for i := range m.rounds {
			for side, do := range []func(context.Context, int) error{m.ours, m.theirs} {
				began := time.Now()
				if err := do(ctx, i); err != nil {
					return nil, fmt.Errorf("%s: %w", m.name, err)
				}
				took[side] = append(took[side], milliseconds(time.Since(began)))
			}
		}
		results = append(results, paired(m.name, "ms", took[0], took[1]))
	}
	return results, nil
}

// serveRESTCONF serves as a controller does, and waits until it answers.
func serveRESTCONF(ctx context.Context, a *apitest.API, c client.Client) (*restconfSite, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	api, err := kubernetes.NewForConfig(a.REST)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	informers, err := cache.New(a.REST, cache.Options{Scheme: reconcile.NewScheme()})
	if err != nil {
		cancel()
		return nil, nil, err
	}
	address, err := freeAddress(ctx)
	if err == nil {
		err = restconf.AddIndexes(ctx, informers)
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	server, err := restconf.New(restconf.Options{
		Log: slog.New(slog.DiscardHandler), Kubernetes: api, Namespace: metav1.NamespaceSystem, BindAddress: address,
		API:  &restconf.Store{Live: c, Cached: informers, Client: c, Informers: informers},
		Loop: heartbeat.New(heartbeat.Bound).Loop("restconf"),
	})
	if err != nil {
		cancel()
		return nil, nil, err
	}
	ended := make(chan error, 2)
	go func() { ended <- informers.Start(ctx) }()
	go func() { ended <- server.Start(ctx) }()
	stop := func() {
		cancel()
		_ = errors.Join(<-ended, <-ended) // what it has answered was judged already
	}
	s := &restconfSite{client: c, address: "https://" + address}
	// The certificate is the measure's own, made a moment ago.
	s.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	if s.token, err = administrator(ctx, c, api); err == nil {
		informers.WaitForCacheSync(ctx)
		err = s.await(ctx)
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return s, stop, nil
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// administrator makes a service account that may do all, and returns a token of it.
func administrator(ctx context.Context, c client.Client, api kubernetes.Interface) (string, error) {
	const name, namespace = "bench", metav1.NamespaceDefault
	meta := metav1.ObjectMeta{Name: name}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}},
		},
	} {
		if err := c.Create(ctx, o); err != nil {
			return "", err
		}
	}
	request, err := api.CoreV1().ServiceAccounts(namespace).
		CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}

// await waits until the server answers.
func (s *restconfSite) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	backoff := retry.New(50*time.Millisecond, time.Second)
	for {
		err := s.do(ctx, http.MethodGet, "coelan:routers", nil)
		if err == nil {
			return nil
		}
		if !backoff.Wait(ctx) {
			return fmt.Errorf("RESTCONF does not answer: %w", err)
		}
	}
}

// do sends a request and reads the whole answer, which must be a success.
func (s *restconfSite) do(ctx context.Context, method, path string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, method, s.address+restconfData+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/yang-data+json")
	answer, err := s.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return err
}

// fill makes the Networks and Services.
func (s *restconfSite) fill(ctx context.Context) error {
	if err := fill(ctx, restconfNetworks, func(ctx context.Context, i int) error {
		n := &v1alpha1.Network{Spec: v1alpha1.NetworkSpec{
			Subnets: []v1alpha1.Subnet{{CIDR: "10.10.0.0/16"}, {CIDR: "fd00:10::/64"}},
		}}
		n.Name = networkOf(i)
		return s.client.Create(ctx, n)
	}); err != nil {
		return err
	}
	return fill(ctx, restconfServices, func(ctx context.Context, i int) error {
		v := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: serviceNamespace, Name: serviceOf(i)},
			Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		metav1.SetMetaDataLabel(&v.ObjectMeta, mapping.LabelService, uidOfService(i))
		return s.client.Create(ctx, v)
	})
}

func networkOf(i int) string    { return "n" + strconv.Itoa(i) }
func serviceOf(i int) string    { return "s" + strconv.Itoa(i) }
func uidOfService(i int) string { return fmt.Sprintf("11111111-2222-3333-4444-%012d", i) }

func (s *restconfSite) putNetwork(ctx context.Context, i int) error {
	return s.do(ctx, http.MethodPut, "coelan:networks/network="+networkOf(i), fmt.Appendf(nil,
		`{"coelan:network":[{"name":"%s","description":"%d","subnet":[{"cidr":"10.10.0.0/16"},{"cidr":"fd00:10::/64"}]}]}`,
		networkOf(i), i))
}

// updateNetwork writes the whole object as well, which has to be read first.
func (s *restconfSite) updateNetwork(ctx context.Context, i int) error {
	n := &v1alpha1.Network{}
	if err := s.client.Get(ctx, client.ObjectKey{Name: networkOf(restconfRounds + i)}, n); err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, mapping.AnnotationDescription, strconv.Itoa(i))
	return s.client.Update(ctx, n)
}

func (s *restconfSite) getNetwork(ctx context.Context, i int) error {
	return s.do(ctx, http.MethodGet, "coelan:networks/network="+networkOf(i), nil)
}

func (s *restconfSite) readNetwork(ctx context.Context, i int) error {
	return s.client.Get(ctx, client.ObjectKey{Name: networkOf(i)}, &v1alpha1.Network{})
}

func (s *restconfSite) getNetworks(ctx context.Context, _ int) error {
	return s.do(ctx, http.MethodGet, "coelan:networks", nil)
}

func (s *restconfSite) getInstances(ctx context.Context, _ int) error {
	return s.do(ctx, http.MethodGet, "elan:elan-instances", nil)
}

func (s *restconfSite) readNetworks(ctx context.Context, _ int) error {
	return s.client.List(ctx, &v1alpha1.NetworkList{})
}

func (s *restconfSite) patchService(ctx context.Context, i int) error {
	return s.do(ctx, http.MethodPatch, "service:service-information/services="+uidOfService(i), fmt.Appendf(nil,
		`{"service:services":[{"uid":"%s","external-ip-address":["203.0.113.%d"]}]}`, uidOfService(i), i+1))
}

func (s *restconfSite) updateService(ctx context.Context, i int) error {
	v := &corev1.Service{}
	key := client.ObjectKey{Namespace: serviceNamespace, Name: serviceOf(restconfRounds + i)}
	if err := s.client.Get(ctx, key, v); err != nil {
		return err
	}
	v.Spec.ExternalIPs = []string{fmt.Sprintf("203.0.113.%d", i+1)}
	return s.client.Update(ctx, v)
}
