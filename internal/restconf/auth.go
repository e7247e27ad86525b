// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"coelan.io/coelan/internal/reviews"
)

// limits bound what clients can cause.
var limits = reviews.Limits{
	Accepted: identityFor, Refused: identityFor, Strangers: strangersPerSecond, Burst: strangersBurst,
}

const (
	identityFor = 30 * time.Second
	// Checks of credentials that were not accepted lately.
	strangersPerSecond, strangersBurst = 10, 20
	maxCredential                      = 16 << 10
	// maxCost of a bcrypt hash: it takes a second.
	maxCost = 14
)

// UsersSecret is the Secret of the users that authenticate by Basic: a key is a user's name. A
// value is a bcrypt hash, and after a space the user of Kubernetes that it stands for, and after
// further spaces that user's groups. Without a user of Kubernetes it is restconf:NAME.
const UsersSecret = "coelan-restconf-users"

// authenticator finds out which user of Kubernetes a request is of. It is safe for concurrent use.
type authenticator struct {
	api       kubernetes.Interface
	namespace string
	// clients signs the certificates of clients; nil: none are accepted.
	clients  func(context.Context) (*x509.CertPool, error)
	reviewed *reviews.Cache[Identity]
	// noUser is compared with for users that are not there: both take the same time.
	noUser []byte
}

// hashOfNoUser is made once: it takes a while.
var hashOfNoUser = sync.OnceValues(func() ([]byte, error) {
	return bcrypt.GenerateFromPassword([]byte("no user"), bcrypt.DefaultCost)
})

func newAuthenticator(api kubernetes.Interface, namespace string,
	clients func(context.Context) (*x509.CertPool, error),
) (*authenticator, error) {
	noUser, err := hashOfNoUser()
	if err != nil {
		return nil, err
	}
	return &authenticator{
		noUser: noUser, api: api, namespace: namespace, clients: clients, reviewed: reviews.New[Identity](limits),
	}, nil
}

var errUnauthenticated = errors.New("the credentials are missing or wrong")

// identify returns the user of a request: by its header Authorization, or by the certificate of
// its connection.
func (a *authenticator) identify(r *http.Request) (Identity, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			return a.byCertificate(r.Context(), r.TLS.PeerCertificates)
		}
		return Identity{}, errUnauthenticated
	}
	if len(header) > maxCredential {
		return Identity{}, errUnauthenticated
	}
	v, err := a.reviewed.Of(r.Context(), header, func(ctx context.Context) (reviews.Verdict[Identity], error) {
		identity, err := a.check(ctx, r)
		if errors.Is(err, errUnauthenticated) {
			return reviews.Verdict[Identity]{}, nil
		}
		return reviews.Verdict[Identity]{Accepted: true, Answer: identity}, err
	})
	if err == nil && !v.Accepted {
		err = errUnauthenticated
	}
	return v.Answer, err
}

// check looks at the header Authorization.
func (a *authenticator) check(ctx context.Context, r *http.Request) (Identity, error) {
	if user, password, ok := r.BasicAuth(); ok {
		return a.byPassword(ctx, user, password)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return Identity{}, errUnauthenticated
	}
	review, err := a.api.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return Identity{}, fmt.Errorf("review of a token: %w", err)
	}
	if !review.Status.Authenticated {
		return Identity{}, errUnauthenticated
	}
	user := review.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	return Identity{Name: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra}, nil
}

// byPassword looks a user up in the Secret.
func (a *authenticator) byPassword(ctx context.Context, user, password string) (Identity, error) {
	secret, err := a.api.CoreV1().Secrets(a.namespace).Get(ctx, UsersSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret, err = &corev1.Secret{}, nil
	}
	if err != nil {
		return Identity{}, fmt.Errorf("users: %w", err)
	}
	fields := strings.Fields(string(secret.Data[user]))
	hash := a.noUser
	if len(fields) > 0 {
		hash = []byte(fields[0])
	}
	cost, err := bcrypt.Cost(hash)
	if err != nil || cost > maxCost {
		return Identity{}, errUnauthenticated
	}
	if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil || len(fields) == 0 {
		return Identity{}, errUnauthenticated
	}
	identity := Identity{Name: "restconf:" + user, Groups: []string{"system:authenticated"}}
	if len(fields) > 1 {
		identity.Name = fields[1]
		identity.Groups = append(fields[2:], identity.Groups...)
	}
	return identity, nil
}

// byCertificate is the user of a client's certificate, as Kubernetes reads it: the common name is
// the user, the organizations its groups.
func (a *authenticator) byCertificate(ctx context.Context, chain []*x509.Certificate) (Identity, error) {
	if a.clients == nil {
		return Identity{}, errUnauthenticated
	}
	roots, err := a.clients(ctx)
	if err != nil {
		return Identity{}, err
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	subject := chain[0].Subject
	if err != nil || subject.CommonName == "" {
		return Identity{}, errUnauthenticated
	}
	return Identity{Name: subject.CommonName, Groups: append(subject.Organization, "system:authenticated")}, nil
}
