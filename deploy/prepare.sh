#!/bin/sh
# What a pair of servers needs before it can start: a certificate authority, certificates, the analyzer's key, secrets,
# passwords of the databases, and a task. Run once, by the service `prepare` of compose.yaml; a second run changes nothing.
#
# For a trial: here one operator makes what belongs to two parties. In earnest the analyzer makes its own key, each
# party its own certificate, and only the shared secret goes from one to the other (docs/deploy.md, Two machines).
set -eu

etc=/etc/shufflesum
url=${SHUFFLER_URL:-https://localhost:8443}

if [ -e "$etc/public/task.json" ]; then # written last
    echo "prepared already; docker compose down --volumes throws everything away"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 077
rm -f "$etc"/public/* "$etc"/shuffler/* "$etc"/analyzer/* "$etc"/shuffler-db/* "$etc"/analyzer-db/*

# The authority vouches for two certificates; then its key is gone, so that nobody can make a third.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=shufflesum local authority" \
    -addext keyUsage=critical,keyCertSign,cRLSign -keyout "$work/ca.key" -out "$work/ca.pem" 2>/dev/null
host=${url#*://}
host=${host%%/*}
host=${host%:*}
case $host in
*[!0-9.]*) outside="DNS:$host" ;;
*) outside="IP:$host" ;;
esac
for party in shuffler analyzer; do
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$party" \
        -keyout "$etc/$party/tls.key" -out "$work/$party.csr" 2>/dev/null
    cat >"$work/$party.ext" <<EXTENSIONS
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = DNS:$party, DNS:localhost, IP:127.0.0.1, $outside
EXTENSIONS
    openssl x509 -req -in "$work/$party.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -days 825 \
        -extfile "$work/$party.ext" -out "$etc/$party/cert.pem" 2>/dev/null
    cp "$work/ca.pem" "$etc/$party/ca.pem"

    # The database reads its password once, as another user than ours; nobody else has the volume.
    openssl rand -hex 32 >"$work/password"
    install -m 0444 "$work/password" "$etc/$party-db/password"
    printf '%s-database:5432:%s:%s:%s\n' "$party" "$party" "$party" "$(cat "$work/password")" >"$etc/$party/pgpass"
done

openssl rand -hex 32 >"$etc/shuffler/secret"
cp "$etc/shuffler/secret" "$etc/analyzer/secret"
openssl rand -hex 32 >"$etc/shuffler/operator-secret"

shufflesum keygen -o "$etc/analyzer/analyzer"
shufflesum plan --users "${USERS:-1000}" --dimension "${DIMENSION:-4}" --epsilon "${EPSILON:-1}" --delta "${DELTA:-1e-6}" \
    --rounds "${ROUNDS:-1}" -o "$work/plan.json"
umask 022
install -m 0444 "$work/ca.pem" "$etc/public/ca.pem"
shufflesum task create --plan "$work/plan.json" --shuffler "$url" --analyzer-key "$etc/analyzer/analyzer.pub" \
    --name "${NAME:-trial}" -o "$etc/public/task.json"
